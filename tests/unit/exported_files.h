/* Files of torch.export.save() for tests: the fixtures, and the same with entries changed. */
#ifndef TEST_EXPORTED_FILES_H
#define TEST_EXPORTED_FILES_H

#include "support.h"

enum { MAX_ENTRIES = 64 };

typedef struct exported_entry {
    char name[200];
    unsigned char *bytes; /* owned */
    size_t size_bytes;
} exported_entry;

typedef struct exported_file {
    exported_entry entries[MAX_ENTRIES];
    size_t count;
} exported_file;

static inline void fixture_path(char *path, const char *version)
{
    snprintf(path, TEST_MAX_PATH, "%s/torch/exported/tiny-%s.pt2", getenv("TEST_DATA"), version);
}

static inline uint64_t load_number(const unsigned char *bytes, size_t width)
{
    uint64_t number = 0;
    memcpy(&number, bytes, width);
    return number;
}

/* Reads the entries of a fixture, by its central directory. */
static inline exported_file read_fixture(const char *version)
{
    exported_file file = {.count = 0};
    char path[TEST_MAX_PATH], *text = NULL;
    size_t size_bytes = 0;
    fixture_path(path, version);
    assert_int_equal(fth_file_read_all(path, 1 << 20, &text, &size_bytes), FTH_OK);
    const unsigned char *bytes = (unsigned char *)text, *end = bytes + size_bytes - 22;
    assert_int_equal(load_number(end, 4), 0x06054b50);
    const unsigned char *at = bytes + load_number(end + 16, 4);
    for (uint64_t left = load_number(end + 10, 2); left > 0; left--) {
        exported_entry *entry = &file.entries[file.count++];
        const unsigned char *local = bytes + load_number(at + 42, 4);
        const size_t name_length = load_number(at + 28, 2);
        assert_true(file.count <= MAX_ENTRIES && name_length < sizeof entry->name);
        memcpy(entry->name, at + 46, name_length);
        entry->size_bytes = load_number(at + 24, 4);
        entry->bytes = malloc(entry->size_bytes + 1);
        memcpy(entry->bytes, local + 30 + load_number(local + 26, 2) + load_number(local + 28, 2), entry->size_bytes);
        at += 46 + name_length + load_number(at + 30, 2) + load_number(at + 32, 2);
    }
    free(text);
    return file;
}

static inline void release_file(exported_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        free(file->entries[i].bytes);
}

static inline exported_entry *find_entry(exported_file *file, const char *end)
{
    for (size_t i = 0; i < file->count; i++) {
        const size_t length = strlen(file->entries[i].name);
        if (length >= strlen(end) && strcmp(file->entries[i].name + length - strlen(end), end) == 0)
            return &file->entries[i];
    }
    fail_msg("no entry %s", end);
    return NULL;
}

/* Changes the first `from` of an entry, which is named without its folder. */
static inline bool replace_in_entry(exported_file *file, const char *name, const char *from, const char *to)
{
    exported_entry *entry = find_entry(file, name);
    unsigned char *found = memmem(entry->bytes, entry->size_bytes, from, strlen(from));
    if (!found)
        return false;
    const size_t before = (size_t)(found - entry->bytes), after = entry->size_bytes - before - strlen(from);
    unsigned char *bytes = malloc(before + strlen(to) + after + 1);
    memcpy(bytes, entry->bytes, before);
    memcpy(bytes + before, to, strlen(to));
    memcpy(bytes + before + strlen(to), found + strlen(from), after);
    free(entry->bytes);
    entry->bytes = bytes;
    entry->size_bytes = before + strlen(to) + after;
    return true;
}

static inline void rename_entry(exported_file *file, const char *name, const char *to)
{
    exported_entry *entry = find_entry(file, name);
    char *end = entry->name + strlen(entry->name) - strlen(name);
    snprintf(end, sizeof entry->name - (size_t)(end - entry->name), "%s", to);
}

static inline void put(unsigned char *to, size_t *at, const void *bytes, size_t size_bytes)
{
    if (size_bytes)
        memcpy(to + *at, bytes, size_bytes);
    *at += size_bytes;
}

static inline void put_number(unsigned char *to, size_t *at, uint64_t number, size_t width)
{
    put(to, at, &number, width);
}

static inline void put_header(unsigned char *to, size_t *at, const exported_entry *entry, bool central, size_t local)
{
    static const unsigned char zeros[16];
    put(to, at, central ? "PK\1\2" : "PK\3\4", 4);
    put(to, at, zeros, central ? 8 : 6);
    put(to, at, zeros, 8);
    put_number(to, at, entry->size_bytes, 4);
    put_number(to, at, entry->size_bytes, 4);
    put_number(to, at, strlen(entry->name), 2);
    put(to, at, zeros, central ? 12 : 2);
    if (central)
        put_number(to, at, local, 4);
    put(to, at, entry->name, strlen(entry->name));
}

/* The entries as a zip archive; free() it. */
static inline unsigned char *pack(const exported_file *file, size_t *size_bytes)
{
    size_t most = 22, at = 0, locals[MAX_ENTRIES];
    for (size_t i = 0; i < file->count; i++)
        most += file->entries[i].size_bytes + 2 * (100 + strlen(file->entries[i].name));
    unsigned char *bytes = malloc(most);
    for (size_t i = 0; i < file->count; i++) {
        locals[i] = at;
        put_header(bytes, &at, &file->entries[i], false, 0);
        put(bytes, &at, file->entries[i].bytes, file->entries[i].size_bytes);
    }
    const size_t directory = at;
    for (size_t i = 0; i < file->count; i++)
        put_header(bytes, &at, &file->entries[i], true, locals[i]);
    const size_t directory_size = at - directory;
    put(bytes, &at, "PK\5\6\0\0\0\0", 8);
    put_number(bytes, &at, file->count, 2);
    put_number(bytes, &at, file->count, 2);
    put_number(bytes, &at, directory_size, 4);
    put_number(bytes, &at, directory, 4);
    put_number(bytes, &at, 0, 2);
    *size_bytes = at;
    return bytes;
}

/* JSON from text with ' in place of "; \\' stays an apostrophe. free() it. */
static inline char *json_of(const char *text)
{
    char *json = strdup(text);
    size_t used = 0;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '\\' && text[i + 1] == '\'')
            json[used++] = text[++i];
        else
            json[used++] = text[i] == '\'' ? '"' : text[i];
    }
    json[used] = '\0';
    return json;
}

#endif
