/* A worker's gradients on their way: what compression leaves out, also of those that are refused,
 * and the memory that a server of the same machine reads them from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"
#include "parameters/client.h"
#include "parameters/local.h"

typedef struct fixture {
    fth_graph *graph;
    fth_layout *layout;
    float *gradients, *sum;
} fixture;

static fixture open_fixture(const char *name)
{
    fixture f = {0};
    const fth_model *model = NULL;
    assert_int_equal(fth_model_find(name, &model), FTH_OK);
    fth_model_options options = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    assert_int_equal(fth_model_create_graph(model, &options, &f.graph), FTH_OK);
    assert_int_equal(fth_layout_create(f.graph, &f.layout), FTH_OK);
    f.gradients = calloc(f.layout->trained_floats, sizeof *f.gradients);
    f.sum = calloc(f.layout->trained_floats, sizeof *f.sum);
    return f;
}

static void close_fixture(fixture *f)
{
    fth_layout_free(f->layout);
    fth_graph_free(f->graph);
    free(f->gradients);
    free(f->sum);
}

static void set_gradients(fixture *f, float factor)
{
    for (int i = 0; i < f->layout->trained; i++)
        for (int64_t j = 0; j < f->layout->tensors[i].count; j++)
            f->gradients[f->layout->tensors[i].vector_offset + (size_t)j] = factor * (float)(1 + (j * 37) % 101);
}

/* What the server gets of the gradients; added to the sum. */
static void send(fixture *f, fth_encoder *encoder, bool accepted)
{
    fth_gradient gradient;
    char message[FTH_MAX_REFUSAL] = "";
    fth_push_body body = {0};
    fth_encoder_facts facts = {.worker = "w", .sequence = 1, .samples = 1, .loss = 1};
    assert_int_equal(fth_encoder_take(encoder, f->gradients, NULL), FTH_OK);
    assert_int_equal(fth_encoder_make(encoder, &facts, &body), FTH_OK);
    assert_int_equal(fth_gradient_parse(f->layout, body.bytes, body.size_bytes, &gradient, message), FTH_REFUSAL_NONE);
    if (accepted)
        fth_gradient_add(f->layout, &gradient, 1, false, f->sum);
    else
        fth_encoder_give_back(encoder, f->gradients);
    fth_gradient_release(&gradient);
}

/* The sum of what arrives is the sum of what was computed for pushes that were accepted; a refused
 * one in between, which had what they left out with it, loses nothing and adds nothing. */
static void test_refused_pushes_keep_the_rest(void **state)
{
    (void)state;
    static const char *const ways[] = {"f16", "bf16", "topk:30%"};
    for (size_t way = 0; way < FTH_COUNT_OF(ways); way++) {
        fixture f = open_fixture("linear");
        fth_encoder *encoder = NULL;
        assert_int_equal(fth_encoder_create(f.layout, ways[way], &encoder), FTH_OK);
        set_gradients(&f, 0.0123f);
        send(&f, encoder, true);
        set_gradients(&f, 0.0357f);
        send(&f, encoder, false);
        set_gradients(&f, 0);
        for (int i = 0; i < 8; i++) /* with nothing new, all that was left comes */
            send(&f, encoder, true);
        set_gradients(&f, 0.0123f);
        for (size_t i = 0; i < f.layout->trained_floats; i++)
            assert_true(fabsf(f.sum[i] - f.gradients[i]) <= 4e-6f); /* a few roundings of sums up to 5 */
        fth_encoder_free(encoder);
        close_fixture(&f);
    }
}

/* ---- memory that is read while it changes ---- */

typedef struct shared {
    fixture f;
    fth_encoder *encoder;
    _Atomic uint64_t stamp;
    size_t size_bytes;
    int fd;
    atomic_bool ended;
} shared;

static void write_body(shared *s, float value)
{
    fth_push_body body = {0};
    fth_encoder_facts facts = {.worker = "w", .sequence = 1, .samples = 1, .loss = 1};
    for (size_t i = 0; i < s->f.layout->trained_floats; i++)
        s->f.gradients[i] = value;
    assert_int_equal(fth_encoder_take(s->encoder, s->f.gradients, NULL), FTH_OK);
    assert_int_equal(fth_encoder_make(s->encoder, &facts, &body), FTH_OK);
    if (s->size_bytes == 0) {
        s->size_bytes = body.size_bytes;
        s->fd = body.fd;
    }
    assert_true(s->size_bytes == body.size_bytes && s->fd == body.fd); /* the memory stays where it is */
    s->stamp = body.stamp;
}

static void *write_bodies(void *context)
{
    shared *s = context;
    for (int i = 2; i < 400; i++)
        write_body(s, (float)i);
    s->ended = true;
    return NULL;
}

typedef struct copy {
    float *to;
    size_t size_bytes;
} copy;

static fth_status take_copy(void *context, int fd)
{
    const copy *c = context;
    return pread(fd, c->to, c->size_bytes, 0) == (ssize_t)c->size_bytes ? FTH_OK : FTH_IO;
}

/* A request that was given up may be read when the worker is at its next gradient: it gets a whole
 * body, or none. */
static void test_a_body_is_never_half_of_two(void **state)
{
    (void)state;
    shared s = {.f = open_fixture("mnist-cnn")};
    pthread_t writer;
    int whole = 0, torn = 0;
    assert_int_equal(fth_encoder_create(s.f.layout, "none", &s.encoder), FTH_OK);
    write_body(&s, 1);
    float *bytes = malloc(s.size_bytes);
    fth_local_place place = {.process = (long)getpid(), .fd = s.fd, .size_bytes = s.size_bytes, .stamp = 1};
    assert_int_equal(fth_local_read(&place, take_copy, &(copy){bytes, s.size_bytes}), FTH_OK);
    place.stamp = 2;
    assert_int_equal(fth_local_read(&place, take_copy, &(copy){bytes, s.size_bytes}), FTH_INVALID);
    assert_int_equal(pthread_create(&writer, NULL, write_bodies, &s), 0);
    while (!s.ended) {
        place.stamp = s.stamp;
        if (fth_local_read(&place, take_copy, &(copy){bytes, s.size_bytes}) != FTH_OK) {
            torn++;
            continue;
        }
        whole++;
        size_t floats = s.f.layout->trained_floats / 2; /* the last numbers, whatever the header's length */
        const char *end = (const char *)bytes + s.size_bytes;
        for (size_t i = 1; i <= floats; i++) {
            float value;
            memcpy(&value, end - 4 * i, 4);
            assert_true(value == (float)place.stamp);
        }
    }
    pthread_join(writer, NULL);
    assert_true(whole + torn > 0);
    place.stamp = s.stamp;
    assert_int_equal(fth_local_read(&place, take_copy, &(copy){bytes, s.size_bytes}), FTH_OK);
    free(bytes);
    fth_encoder_free(s.encoder);
    close_fixture(&s.f);
}

static void test_places(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "1", "1 2", "1 2 0", "0 2 3", "1 2 3 x", "1 2 3 4 5", "-1 2 3", "1 2 3 -4"};
    fth_local_place place;
    assert_true(fth_local_parse("12 3 4096", &place));
    assert_true(place.process == 12 && place.fd == 3 && place.size_bytes == 4096 && place.stamp == 0);
    assert_true(fth_local_parse("12 3 4096 77", &place));
    assert_true(place.size_bytes == 4096 && place.stamp == 77);
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_false(fth_local_parse(bad[i], &place));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_pushes_keep_the_rest),
        cmocka_unit_test(test_a_body_is_never_half_of_two),
        cmocka_unit_test(test_places),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
