/* Flat vectors on every back end: memory and copies, sum, norm, and the optimizers, against
 * formulas in double. */
#include <math.h>

#include "op_harness.h"

static const char *const names[] = {"reference", OP_DEVICES};
static const size_t counts[] = {1, 15, 16, 17, 4096, 4097, 100003};

/* Calls `test` with every device there is. */
static void on_each_device(void (*test)(fth_device *device))
{
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        if (device != NULL)
            test(device);
    }
}

static float *random_floats(size_t count, uint64_t seed)
{
    fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_GENERATE);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)fth_random_normal(key, i);
    return values;
}

static float *to_device(fth_device *device, const float *values, size_t count)
{
    void *memory = NULL;
    op_check(device->backend->allocate(device, count * sizeof(float), &memory));
    op_check(device->backend->copy_in(device, memory, values, count * sizeof(float)));
    return memory;
}

static void from_device(fth_device *device, float *values, const float *memory, size_t count)
{
    op_check(device->backend->copy_out(device, values, memory, count * sizeof(float)));
}

/* ---- memory ---- */

static void check_memory(fth_device *device)
{
    const fth_backend *backend = device->backend;
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++) {
        const size_t count = counts[c], size_bytes = count * sizeof(float);
        float *values = random_floats(count, 1), *back = malloc(size_bytes);
        void *memory = NULL;

        op_check(backend->allocate(device, size_bytes, &memory));
        assert_int_equal((uintptr_t)memory % FTH_ALIGNMENT, 0);
        op_check(backend->copy_out(device, back, memory, size_bytes));
        for (size_t i = 0; i < count; i++)
            assert_true(back[i] == 0); /* fresh memory is zeroed */
        op_check(backend->copy_in(device, memory, values, size_bytes));
        op_check(backend->copy_out(device, back, memory, size_bytes));
        assert_memory_equal(back, values, size_bytes);

        /* copy_in has taken the bytes by the time it returns. */
        memset(back, 0x55, size_bytes);
        op_check(backend->copy_in(device, memory, back, size_bytes));
        memset(back, 0, size_bytes);
        op_check(backend->copy_out(device, back, memory, size_bytes));
        assert_int_equal(((unsigned char *)back)[size_bytes - 1], 0x55);

        op_check(backend->fill_zero(device, memory, size_bytes));
        op_check(backend->synchronize(device, fth_deadline_in(10)));
        op_check(backend->copy_out(device, back, memory, size_bytes));
        for (size_t i = 0; i < count; i++)
            assert_true(back[i] == 0);
        backend->release(device, memory);
        free(values);
        free(back);
    }
}

static void test_memory(void **state)
{
    (void)state;
    on_each_device(check_memory);
}

static void check_nothing(fth_device *device)
{
    const fth_backend *backend = device->backend;
    void *memory = NULL;
    double norm = -1;
    op_check(backend->allocate(device, 0, &memory)); /* a model without buffers has an empty vector */
    op_check(backend->copy_in(device, memory, "", 0));
    op_check(backend->fill_zero(device, memory, 0));
    op_check(backend->add(device, memory, memory, 0));
    op_check(backend->norm(device, memory, 0, &norm));
    assert_true(norm == 0);
    backend->release(device, memory);
}

static void test_empty_vectors(void **state)
{
    (void)state;
    on_each_device(check_nothing);
}

/* More than any machine has: 2^59 bytes. */
static void check_refusal(fth_device *device)
{
    void *memory = NULL;
    assert_int_equal(device->backend->allocate(device, (size_t)1 << 59, &memory), FTH_NO_MEMORY);
    assert_string_not_equal(fth_error_message(), "");
}

static void test_too_much_memory_is_a_status(void **state)
{
    (void)state;
    on_each_device(check_refusal);
}

/* ---- sum and norm ---- */

static void check_add(fth_device *device)
{
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++) {
        const size_t count = counts[c];
        float *a = random_floats(count, 1), *b = random_floats(count, 2), *sum = malloc(count * sizeof(float));
        float *to = to_device(device, a, count), *from = to_device(device, b, count);

        op_check(device->backend->add(device, to, from, count));
        from_device(device, sum, to, count);
        for (size_t i = 0; i < count; i++)
            assert_true(sum[i] == a[i] + b[i]); /* one rounding, the same everywhere */
        from_device(device, sum, from, count);
        assert_memory_equal(sum, b, count * sizeof(float));
        device->backend->release(device, to);
        device->backend->release(device, from);
        free(a);
        free(b);
        free(sum);
    }
}

static void test_add(void **state)
{
    (void)state;
    on_each_device(check_add);
}

static void check_norm(fth_device *device)
{
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++) {
        const size_t count = counts[c];
        float *values = random_floats(count, 3);
        float *memory = to_device(device, values, count);
        double wanted = 0, norm = 0;
        for (size_t i = 0; i < count; i++)
            wanted += (double)values[i] * values[i];
        op_check(device->backend->norm(device, memory, count, &norm));
        assert_true(fabs(norm - sqrt(wanted)) <= 1e-12 * sqrt(wanted)); /* summed in double */
        device->backend->release(device, memory);
        free(values);
    }
}

static void test_norm(void **state)
{
    (void)state;
    on_each_device(check_norm);
}

/* Squares of these overflow or vanish in f32. */
static void check_norm_range(fth_device *device)
{
    const float values[] = {3e30f, -4e30f, 0, 1e-30f};
    float *memory = to_device(device, values, FTH_COUNT_OF(values));
    double norm = 0;
    op_check(device->backend->norm(device, memory, FTH_COUNT_OF(values), &norm));
    assert_true(fabs(norm / 5e30 - 1) < 1e-6);
    device->backend->release(device, memory);

    const float broken[] = {1, NAN, 2};
    memory = to_device(device, broken, FTH_COUNT_OF(broken));
    op_check(device->backend->norm(device, memory, FTH_COUNT_OF(broken), &norm));
    assert_true(isnan(norm));
    device->backend->release(device, memory);
}

static void test_norm_of_extremes(void **state)
{
    (void)state;
    on_each_device(check_norm_range);
}

static void test_cpu_norm_is_the_same_for_any_threads(void **state)
{
    (void)state;
    const size_t count = 100003;
    float *values = random_floats(count, 4);
    double first = 0;
    for (int threads = 1; threads <= 4; threads++) {
        fth_device *device = NULL;
        double norm = 0;
        op_check(fth_device_open("cpu", &(fth_device_options){.threads = threads}, &device));
        float *memory = to_device(device, values, count);
        op_check(device->backend->norm(device, memory, count, &norm));
        if (threads == 1)
            first = norm;
        assert_memory_equal(&norm, &first, sizeof norm);
        device->backend->release(device, memory);
        fth_device_close(device);
    }
    free(values);
}

/* ---- optimizers ---- */

typedef struct scalar_state {
    double p, first, second;
} scalar_state;

typedef void formula(const fth_update_arguments *a, int64_t step, double gradient, scalar_state *s);

typedef struct update_case {
    const char *name, *optimizer;
    formula *update;                /* of one number, in double */
    fth_update_arguments arguments; /* step is counted by the test */
} update_case;

/* torch.optim.SGD */
static void sgd(const fth_update_arguments *a, int64_t step, double gradient, scalar_state *s)
{
    double g = gradient * a->gradient_scale + a->weight_decay * s->p;
    if (a->momentum != 0) {
        s->first = step == 1 ? g : a->momentum * s->first + g;
        g = a->nesterov ? g + a->momentum * s->first : s->first;
    }
    s->p -= a->learning_rate * g;
}

/* torch.optim.AdamW */
static void adamw(const fth_update_arguments *a, int64_t step, double gradient, scalar_state *s)
{
    double g = gradient * a->gradient_scale;
    s->p *= 1 - (double)a->learning_rate * a->weight_decay;
    s->first += (1 - (double)a->beta1) * (g - s->first);
    s->second = a->beta2 * s->second + (1 - (double)a->beta2) * g * g;
    double corrected = s->first / (1 - pow(a->beta1, (double)step));
    s->p -= a->learning_rate * corrected / (sqrt(s->second / (1 - pow(a->beta2, (double)step))) + a->epsilon);
}

/* A new optimizer gets its formula above, and rows. */
static const update_case updates[] = {
    {"plain", "sgd", sgd, {.learning_rate = 0.1f, .gradient_scale = 1}},
    {"decay", "sgd", sgd, {.learning_rate = 0.1f, .weight_decay = 0.01f, .gradient_scale = 1}},
    {"momentum", "sgd", sgd, {.learning_rate = 0.05f, .momentum = 0.9f, .gradient_scale = 1}},
    {"momentum, decay, clipped",
     "sgd",
     sgd,
     {.learning_rate = 0.05f, .momentum = 0.9f, .weight_decay = 5e-4f, .gradient_scale = 0.3f}},
    {"nesterov",
     "sgd",
     sgd,
     {.learning_rate = 0.05f, .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true, .gradient_scale = 1}},
    {"usual",
     "adamw",
     adamw,
     {.learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .gradient_scale = 1}},
    {"decay, clipped",
     "adamw",
     adamw,
     {.learning_rate = 1e-2f,
      .beta1 = 0.8f,
      .beta2 = 0.95f,
      .epsilon = 1e-6f,
      .weight_decay = 0.1f,
      .gradient_scale = 0.5f}},
};

static void check_update(fth_device *device, const update_case *with, size_t count)
{
    enum { STEPS = 4 };
    const fth_update_kernel *kernel = op_find_update(device, with->optimizer, &with->arguments);
    float *start = random_floats(count, 5), *found = malloc(count * sizeof(float));
    float *nothing = calloc(count, sizeof(float));
    float *parameters = to_device(device, start, count);
    float *state[2] = {to_device(device, nothing, count), to_device(device, nothing, count)};
    scalar_state *wanted = calloc(count, sizeof *wanted);
    fth_update_arguments arguments = with->arguments;

    for (size_t i = 0; i < count; i++)
        wanted[i].p = start[i];
    for (int64_t step = 1; step <= STEPS; step++) {
        float *host = random_floats(count, 10 + (uint64_t)step);
        float *gradients = to_device(device, host, count);
        for (size_t i = 0; i < count; i++)
            with->update(&with->arguments, step, host[i], &wanted[i]);
        arguments.step = step;
        op_check(kernel->run(device, &arguments, parameters, gradients, state, count));
        op_check(device->backend->synchronize(device, fth_deadline_in(10)));
        device->backend->release(device, gradients);
        free(host);
    }
    from_device(device, found, parameters, count);
    for (size_t i = 0; i < count; i++) {
        /* A few f32 roundings of p, and of the change, per step. */
        double limit = STEPS * 8 * 0x1p-24 * (fabs(wanted[i].p) + fabs(wanted[i].p - start[i]) + 0.1);
        if (!(fabs(found[i] - wanted[i].p) <= limit))
            fail_msg("%s %s on %s, element %zu of %zu: %.9g, not %.9g", with->optimizer, with->name,
                     device->backend->name, i, count, found[i], wanted[i].p);
    }
    device->backend->release(device, parameters);
    device->backend->release(device, state[0]);
    device->backend->release(device, state[1]);
    free(start);
    free(found);
    free(nothing);
    free(wanted);
}

static void check_updates(fth_device *device)
{
    for (size_t u = 0; u < FTH_COUNT_OF(updates); u++)
        for (size_t c = 0; c < FTH_COUNT_OF(counts); c++)
            check_update(device, &updates[u], counts[c]);
}

static void test_updates(void **state)
{
    (void)state;
    on_each_device(check_updates);
}

/* SGD without momentum has no state to point to. */
static void check_stateless(fth_device *device)
{
    const float start[] = {1, 2, 3}, gradient[] = {0.5f, 0, -1};
    float *parameters = to_device(device, start, 3), *gradients = to_device(device, gradient, 3), found[3];
    const fth_update_arguments arguments = {.learning_rate = 0.5f, .gradient_scale = 1, .step = 1};
    op_check(op_find_update(device, "sgd", &arguments)->run(device, &arguments, parameters, gradients, NULL, 3));
    from_device(device, found, parameters, 3);
    assert_true(found[0] == 0.75f && found[1] == 2 && found[2] == 3.5f);
    device->backend->release(device, parameters);
    device->backend->release(device, gradients);
}

static void test_sgd_without_state(void **state)
{
    (void)state;
    on_each_device(check_stateless);
}

/* The sanitizer's allocator answers with NULL, as the system's does, instead of ending the
 * process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_empty_vectors),
        cmocka_unit_test(test_too_much_memory_is_a_status),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_of_extremes),
        cmocka_unit_test(test_cpu_norm_is_the_same_for_any_threads),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_sgd_without_state),
    };
    return cmocka_run_group_tests_name("flat vectors on every back end", tests, NULL, op_close_devices);
}
