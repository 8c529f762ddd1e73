/* Large blobs in the log's other file: places that are taken and given back, what a process finds
 * after another, and what happens to those that outlive their log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parameters/wal.h"
#include "support.h"

enum { LARGE = 3000000, MAP = 16 << 20 };

/* ---- a log of blobs that are made of their version ---- */

typedef struct reading {
    int64_t version;
    int records;
} reading;

static void make_body(int64_t version, char *bytes)
{
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (char)((i * 31 + (size_t)version * 7) % 113);
}

static fth_status check_record(void *context, const fth_log_record *record)
{
    reading *r = context;
    char *expected = malloc(LARGE);
    make_body(r->version, expected);
    assert_int_equal(record->body_bytes, LARGE);
    assert_memory_equal(record->body, expected, LARGE);
    free(expected);
    r->version++;
    r->records++;
    return FTH_OK;
}

static int64_t reading_version(void *context)
{
    return ((reading *)context)->version;
}

static fth_wal *open_log(reading *r, fth_status expected)
{
    fth_wal *wal = NULL;
    assert_int_equal(fth_wal_open(test_folder, false, MAP, &(fth_wal_reader){check_record, reading_version, r}, &wal),
                     expected);
    return wal;
}

static void take(fth_wal *wal, int64_t version, fth_wal_blob *body)
{
    char *bytes = malloc(LARGE);
    float largest = INFINITY;
    make_body(version, bytes);
    assert_true(fth_wal_reserve_blob(wal, LARGE, body));
    assert_int_equal(fth_wal_blob_fill(body, bytes, -1, &largest), FTH_OK);
    assert_true(isfinite(largest));
    assert_memory_equal(body->bytes, bytes, LARGE);
    assert_int_equal(body->hash, fth_wal_blob_hash(bytes, LARGE));
    free(bytes);
}

static void append(fth_wal *wal, int64_t version, fth_wal_blob *body)
{
    fth_log_record record = {.kind = FTH_LOG_GRADIENT, .version = version, .body_bytes = LARGE, .blob = body};
    char *bytes = malloc(LARGE);
    make_body(version, bytes);
    record.body = body && body->file ? body->bytes : bytes;
    assert_int_equal(fth_wal_append(wal, &record), FTH_OK);
    free(bytes);
    if (body)
        fth_wal_blob_release(body);
}

static void change_byte(const char *name, long at)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int before = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(before ^ 1, file);
    fclose(file);
}

static void test_bodies_are_found_again(void **state)
{
    (void)state;
    fth_wal_blob first, second, refused;
    fth_wal *wal = open_log(&(reading){0}, FTH_OK);
    take(wal, 1, &second); /* they arrive in another order than they are applied in */
    take(wal, 0, &first);
    append(wal, 0, &first);
    append(wal, 1, &second);
    take(wal, 9, &refused);
    uint64_t size = fth_wal_size_bytes(wal);
    fth_wal_blob_release(&refused);
    assert_true(fth_wal_size_bytes(wal) <= size - LARGE); /* no record refers to it: its place is free */
    append(wal, 2, NULL);                                 /* one that had no place yet */
    for (int i = 3; i < 8; i++)
        append(wal, i, NULL); /* the last ones beyond what is mapped */
    assert_false(fth_wal_reserve_blob(wal, LARGE, &first));
    assert_false(fth_wal_reserve_blob(wal, 1000, &first));
    fth_wal_free(wal);
    reading r = {0};
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.records, 8);

    change_byte("log-000000000000.data", 7 * 3000064 + 5); /* the last one's: not written whole */
    r = (reading){0};
    wal = open_log(&r, FTH_OK);
    assert_int_equal(r.records, 7);
    append(wal, 7, NULL);
    fth_wal_free(wal);
    r = (reading){0};
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.records, 8);
    change_byte("log-000000000000.data",
                LARGE / 2); /* the first's place, which the second has: that was acknowledged */
    assert_null(open_log(&(reading){0}, FTH_CORRUPT));
}

/* A body may wait while the log it was put into ends, goes, and its file is to be used again. */
static void test_bodies_outlive_their_log(void **state)
{
    (void)state;
    fth_wal_blob late, other;
    fth_wal *wal = open_log(&(reading){0}, FTH_OK);
    append(wal, 0, NULL);
    take(wal, 3, &late);
    assert_int_equal(fth_wal_rotate(wal, 1), FTH_OK);
    fth_wal_forget(test_folder, 1);
    append(wal, 1, NULL);
    assert_int_equal(fth_wal_rotate(wal, 2), FTH_OK); /* would write over it, if that were allowed */
    append(wal, 2, NULL);
    take(wal, 77, &other);
    fth_wal_blob_release(&other);
    append(wal, 3, &late);
    fth_wal_forget(test_folder, 2);
    fth_wal_free(wal);
    reading r = {.version = 2};
    wal = open_log(&r, FTH_OK);
    assert_int_equal(r.records, 2);

    /* And where nobody has one, files are used again: they do not grow in number. */
    for (int64_t version = 4; version < 10; version++) {
        assert_int_equal(fth_wal_rotate(wal, version), FTH_OK);
        fth_wal_forget(test_folder, version);
        append(wal, version, NULL);
    }
    fth_wal_free(wal);
    char command[400];
    snprintf(command, sizeof command, "test $(ls '%s' | grep -c data) -le 2", test_folder);
    assert_int_equal(system(command), 0);
    r = (reading){.version = 9};
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.records, 1);
}

/* A log of before blobs had a file of their own is not taken for an empty one. */
static void test_older_logs_are_refused(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/log-000000000005.wal", test_folder);
    FILE *file = fopen(path, "w");
    uint32_t words[12] = {0x324c5446u, 1, [10] = 5};
    fwrite(words, sizeof words, 1, file);
    fclose(file);
    assert_null(open_log(&(reading){.version = 5}, FTH_UNSUPPORTED));
}

/* ---- places ---- */

static void test_places(void **state)
{
    (void)state;
    char path[400];
    fth_wal_blobs *blobs = NULL;
    fth_wal_blob b[5];
    snprintf(path, sizeof path, "%s/blobs", test_folder);
    assert_int_equal(fth_wal_blobs_open(path, 100, MAP, &blobs), FTH_OK);
    uint64_t began = fth_wal_blobs_used_bytes(blobs);
    for (int i = 0; i < 5; i++) {
        fth_wal_blobs_take(blobs, 1000, &b[i]);
        for (int j = 0; j < i; j++)
            assert_true(b[j].offset + 1000 <= b[i].offset);
    }
    uint64_t all = fth_wal_blobs_used_bytes(blobs), first = b[0].offset;
    fth_wal_blob_release(&b[0]);
    fth_wal_blob_release(&b[3]);
    fth_wal_blob_release(&b[2]);
    assert_int_equal(fth_wal_blobs_used_bytes(blobs), all);
    fth_wal_blobs_take(blobs, 500, &b[0]); /* in what was given back */
    assert_int_equal(b[0].offset, first);
    fth_wal_blobs_take(blobs, 400, &b[2]);
    assert_true(b[2].offset < first + 1024);
    fth_wal_blob_release(&b[2]);
    fth_wal_blob_release(&b[0]);
    b[1].kept = true;
    uint64_t kept_until = b[1].offset + 1000;
    fth_wal_blob_release(&b[1]);
    fth_wal_blob_release(&b[4]); /* with it goes what was free before it, down to the one that stays */
    assert_true(fth_wal_blobs_used_bytes(blobs) >= kept_until && fth_wal_blobs_used_bytes(blobs) < kept_until + 64);
    assert_true(began < kept_until);
    fth_wal_blobs_unref(blobs);
}

/* The place of a body that was refused goes to a longer one: all of that is in the file, also of
 * what is written there as memory. */
static void test_a_longer_body_in_the_same_place(void **state)
{
    (void)state;
    enum { SHORT = 1000, LONG = SHORT + 16 };
    char path[400], bytes[LONG], read_back[LONG];
    fth_wal_blobs *blobs = NULL;
    fth_wal_blob body;
    float largest = 0;
    snprintf(path, sizeof path, "%s/blobs", test_folder);
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(fth_wal_blobs_open(path, 0, MAP, &blobs), FTH_OK);
    fth_wal_blobs_take(blobs, SHORT, &body);
    assert_int_equal(fth_wal_blob_fill(&body, bytes, -1, &largest), FTH_OK);
    fth_wal_blob_release(&body);
    fth_wal_blobs_take(blobs, LONG, &body);
    assert_int_equal(body.offset, 0);
    assert_int_equal(fth_wal_blob_fill(&body, bytes, -1, &largest), FTH_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(read_back, 1, LONG, file), LONG);
    fclose(file);
    assert_memory_equal(read_back, bytes, LONG);
    fth_wal_blob_release(&body);
    fth_wal_blobs_unref(blobs);
}

/* What another process may do to the memory that a body is read from. */
static void test_memory_that_goes_away(void **state)
{
    (void)state;
    char path[400];
    fth_wal_blobs *blobs = NULL;
    fth_wal_blob body;
    float largest = 0;
    snprintf(path, sizeof path, "%s/blobs", test_folder);
    assert_int_equal(fth_wal_blobs_open(path, 0, MAP, &blobs), FTH_OK);
    int fd = memfd_create("farthing-test", 0);
    assert_int_equal(ftruncate(fd, LARGE), 0);
    const float bad = NAN, good = 1;
    for (int again = 0; again < 2; again++) { /* first by the file, then by memory */
        assert_int_equal(ftruncate(fd, LARGE), 0);
        assert_int_equal(pwrite(fd, &bad, sizeof bad, LARGE - 8), sizeof bad);
        fth_wal_blobs_take(blobs, LARGE, &body);
        assert_int_equal(fth_wal_blob_fill(&body, NULL, fd, &largest), FTH_OK);
        assert_true(isinf(largest));
        assert_int_equal(pwrite(fd, &good, sizeof good, LARGE - 8), sizeof good);
        assert_int_equal(fth_wal_blob_fill(&body, NULL, fd, &largest), FTH_OK);
        assert_true(largest == 1);
        assert_memory_equal(body.bytes + LARGE - 8, &good, sizeof good);
        assert_int_equal(body.hash, fth_wal_blob_hash(body.bytes, LARGE));
        assert_int_equal(ftruncate(fd, LARGE / 2), 0);
        assert_int_equal(fth_wal_blob_fill(&body, NULL, fd, &largest), FTH_INVALID);
        fth_wal_blob_release(&body);
    }
    fth_wal_blobs_unref(blobs);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bodies_are_found_again, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_bodies_outlive_their_log, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_older_logs_are_refused, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_places, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_a_longer_body_in_the_same_place, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_memory_that_goes_away, test_make_folder, test_remove_folder),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
