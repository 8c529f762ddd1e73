/* Every call, among 1 to 5 processes, against sums made here: with values in shared memory and
 * elsewhere, of counts that do not divide, from beginnings that are not aligned. */
#include "test_collective_members.h"

#include <math.h>

#include "collective/wire.h"

enum { MEMORY_FLOATS = 1 << 20 };

/* What member r has at i: numbers whose sum depends on the order. */
static float term(int r, size_t i)
{
    return (float)(1 + (i * 7919 + (size_t)r * 104729) % 1009) * (r % 2 ? -1e-3f : 1.7f) / (float)(1 + i % 13);
}

static float as_on_wire(fth_wire wire, float value)
{
    uint16_t packed[1];
    if (wire == FTH_WIRE_F32)
        return value;
    fth_wire_pack(wire, &value, 1, packed);
    fth_wire_unpack(wire, packed, 1, &value);
    return value;
}

/* True if member r is the first of its machine. */
static bool leads(const test_member *member, int r)
{
    for (int q = 0; q < r; q++)
        if (member->nodes[q] == member->nodes[r])
            return false;
    return true;
}

/* What the machine of member r has at i, where there are several machines. */
static float machine_sum(const test_member *member, int r, size_t i)
{
    float sum = term(r, i);
    for (int q = r + 1; q < member->size; q++)
        if (member->nodes[q] == member->nodes[r])
            sum += term(q, i);
    return sum;
}

/* Members, or machines where there are several, in the order of ranks. With one member nothing
 * travels. */
static float expected_sum(const test_member *member, size_t i, fth_wire wire)
{
    float sum = 0;
    wire = member->size > 1 ? wire : FTH_WIRE_F32;
    for (int r = 0; r < member->size; r++) {
        if (member->nodes && !leads(member, r))
            continue;
        float value = as_on_wire(wire, member->nodes ? machine_sum(member, r, i) : term(r, i));
        sum = r == 0 ? value : sum + value;
    }
    return as_on_wire(wire, sum);
}

static void fill(const test_member *member, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = term(member->rank, i);
}

static void check_all_reduce(const test_member *member, fth_collective *collective, float *values, size_t count,
                             fth_wire wire)
{
    float before = 0, after = 0;
    fill(member, values, count);
    memcpy(&before, values + count, sizeof before);
    CHECK(fth_collective_all_reduce(collective, values, count, wire) == FTH_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(values[i] == expected_sum(member, i, wire));
    memcpy(&after, values + count, sizeof after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
}

/* Ranges of different lengths, one of them empty. */
static void make_ranges(int size, size_t first, size_t count, size_t *begins)
{
    for (int r = 0; r <= size; r++)
        begins[r] = first + count * (size_t)(r * r) / (size_t)(size * size);
    if (size > 2)
        begins[1] = begins[2];
}

static void check_ranges(const test_member *member, fth_collective *collective, float *values, size_t first,
                         size_t count)
{
    size_t begins[MAX_MEMBERS + 1];
    make_ranges(member->size, first, count, begins);
    for (size_t i = first; i < first + count; i++)
        values[i] = i >= begins[member->rank] && i < begins[member->rank + 1] ? term(0, i) : NAN;
    CHECK(fth_collective_all_gather(collective, values, begins) == FTH_OK);
    for (size_t i = first; i < first + count; i++)
        CHECK(values[i] == term(0, i));
}

static void check_broadcast(const test_member *member, fth_collective *collective, char *bytes, size_t size)
{
    for (int root = 0; root < member->size; root++) {
        for (size_t i = 0; i < size; i++)
            bytes[i] = (char)(member->rank == root ? (i * 31 + (size_t)root) : 0);
        CHECK(fth_collective_broadcast(collective, bytes, size, root) == FTH_OK);
        for (size_t i = 0; i < size; i++)
            CHECK(bytes[i] == (char)(i * 31 + (size_t)root));
    }
}

static void check_sum(const test_member *member, fth_collective *collective, size_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = 1.0 / (double)(1 + (size_t)member->rank + i);
    CHECK(fth_collective_sum(collective, values, count) == FTH_OK);
    for (size_t i = 0; i < count; i++) {
        double expected = 0;
        for (int r = 0; r < member->size; r++)
            expected += 1.0 / (double)(1 + (size_t)r + i);
        /* Sums of a few numbers up to 1, in whatever order. */
        CHECK(fabs(values[i] - expected) <= member->size * 2.3e-16 * expected);
    }
    if (count > 0) { /* the same bits everywhere */
        double first = values[0];
        CHECK(fth_collective_broadcast(collective, &first, sizeof first, 0) == FTH_OK && first == values[0]);
    }
    free(values);
}

/* `values` has room for MEMORY_FLOATS. */
static void check_calls(const test_member *member, fth_collective *collective, float *values)
{
    static const size_t counts[] = {0, 1, 2, 5, 63, 1024, 1025, 4099, 400009};
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++) {
        check_all_reduce(member, collective, values + c, counts[c], FTH_WIRE_F32);
        check_ranges(member, collective, values + c, c, counts[c]);
        check_broadcast(member, collective, (char *)values + c, counts[c] * 2 + c);
    }
    static const fth_wire wires[] = {FTH_WIRE_F16, FTH_WIRE_BF16};
    for (size_t w = 0; w < FTH_COUNT_OF(wires); w++) {
        check_all_reduce(member, collective, values + 3, 1000, wires[w]);
        check_all_reduce(member, collective, values + 3, 70001, wires[w]);
    }
    check_sum(member, collective, 0);
    check_sum(member, collective, 3);
    check_sum(member, collective, 200003);
}

static void make_all_calls(const test_member *member)
{
    test_member with_memory = *member;
    fth_shared_memory *memory = NULL;
    fth_collective *collective = NULL;
    float *elsewhere = calloc(MEMORY_FLOATS, sizeof *elsewhere);
    CHECK(fth_shared_memory_create(MEMORY_FLOATS * sizeof(float), &memory) == FTH_OK);
    with_memory.memory = memory;
    CHECK(open_member(&with_memory, &collective) == FTH_OK);
    CHECK(strcmp(fth_collective_transport(collective), member->context) == 0);
    float *inside = fth_shared_memory_get(memory);
    CHECK(inside[0] == 0 && inside[MEMORY_FLOATS - 1] == 0);
    check_calls(member, collective, elsewhere);
    check_calls(member, collective, inside);
    check_calls(member, collective, member->rank % 2 ? inside : elsewhere); /* some this way, some the other */
    fth_collective_close(collective);
    fth_shared_memory_free(memory);
    free(elsewhere);
}

static void one_member_has_its_own_values(void **state)
{
    (void)state;
    run_members((test_member){.size = 1, .context = "none"}, make_all_calls);
}

static void two_members_of_a_machine(void **state)
{
    (void)state;
    run_members((test_member){.size = 2, .context = "shm"}, make_all_calls);
}

static void three_members_of_a_machine(void **state)
{
    (void)state;
    run_members((test_member){.size = 3, .context = "shm"}, make_all_calls);
}

static void five_members_of_a_machine(void **state)
{
    (void)state;
    run_members((test_member){.size = 5, .context = "shm"}, make_all_calls);
}

/* Several machines, as far as members know; the loopback connects them. */
static void run_machines(int size, const int *nodes, const char *transport)
{
    require_gloo();
    run_members((test_member){.size = size, .nodes = nodes, .context = (void *)transport}, make_all_calls);
}

static void one_member_on_each_machine(void **state)
{
    (void)state;
    static const int nodes[] = {0, 1, 2};
    run_machines(3, nodes, "gloo");
}

static void machines_of_different_sizes(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0, 1, 1, 1, 2};
    run_machines(6, nodes, "shm+gloo");
}

static void machines_whose_ranks_alternate(void **state)
{
    (void)state;
    static const int nodes[] = {7, 3, 7, 3};
    run_machines(4, nodes, "shm+gloo");
}

/* As if rank 1 were in another container: what it says of its memory leads nowhere. */
static fth_status put_elsewhere(void *prefix, const char *key, const void *bytes, size_t size)
{
    const char *wrong = "1 999999 1 1\n";
    bool place = strstr(key, "shm/place/1") != NULL;
    return put_key(prefix, key, place ? wrong : bytes, place ? strlen(wrong) : size);
}

static void share_no_memory(const test_member *member)
{
    fth_collective *collective = NULL;
    double one = 1;
    test_member next = *member;
    next.put = put_elsewhere;
    next.keys = "first";
    CHECK(open_member(&next, &collective) == FTH_UNSUPPORTED);
    CHECK_MESSAGE("cannot share memory with rank 1 on test");
    next.keys = "second";
    next.transport = "auto";
    CHECK(open_member(&next, &collective) == FTH_OK);
    CHECK(strcmp(fth_collective_transport(collective), "gloo") == 0);
    CHECK(fth_collective_sum(collective, &one, 1) == FTH_OK && one == 3);
    fth_collective_close(collective);
}

static void members_that_cannot_share_memory_use_gloo(void **state)
{
    (void)state;
    require_gloo();
    run_members((test_member){.size = 3, .transport = "shm"}, share_no_memory);
}

static void machines_whose_members_cannot_share_memory_use_gloo(void **state)
{
    (void)state;
    static const int nodes[] = {0, 0, 1};
    require_gloo();
    run_members((test_member){.size = 3, .nodes = nodes, .transport = "shm+gloo"}, share_no_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_member_has_its_own_values, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(two_members_of_a_machine, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(three_members_of_a_machine, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(five_members_of_a_machine, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(one_member_on_each_machine, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(machines_of_different_sizes, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(machines_whose_ranks_alternate, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(members_that_cannot_share_memory_use_gloo, test_make_folder,
                                        test_remove_folder),
        cmocka_unit_test_setup_teardown(machines_whose_members_cannot_share_memory_use_gloo, test_make_folder,
                                        test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
