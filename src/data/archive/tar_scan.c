/* See tar_scan.h. A tar consists of blocks of 512 bytes: a header with the size of the contents,
 * the contents, and so on; two blocks of zeros end it. A long name is the contents of a member of
 * its own, before the member that it names. */
#include "data/archive/tar_scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, MAX_NAME_BYTES = 1 << 20 };

typedef struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], unused[12];
} tar_header;
_Static_assert(sizeof(tar_header) == BLOCK, "a header is a block");

/* What preceding members say about the next one. */
typedef struct tar_extra {
    char *path; /* NULL: the header's */
    bool has_size;
    uint64_t size_bytes;
    bool sparse;
} tar_extra;

/* Octal digits, or big-endian bytes if the first bit is set. */
static bool read_number(const char *field, size_t length, uint64_t *number)
{
    *number = 0;
    if (field[0] & 0x80) {
        for (size_t i = 0; i < length; i++) {
            uint8_t byte = (uint8_t)field[i] & (i == 0 ? 0x7f : 0xff);
            if (*number >> 55)
                return false;
            *number = *number << 8 | byte;
        }
        return true;
    }
    size_t i = 0;
    while (i < length && field[i] == ' ')
        i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        *number = *number << 3 | (uint64_t)(field[i] - '0');
    return i == length || field[i] == '\0' || field[i] == ' ';
}

static bool checksum_holds(const tar_header *header)
{
    const uint8_t *bytes = (const uint8_t *)header;
    uint64_t wanted = 0, sum = 0, signed_sum = 0;
    size_t begin = offsetof(tar_header, checksum), end = begin + sizeof header->checksum;
    for (size_t i = 0; i < BLOCK; i++) {
        uint8_t byte = i >= begin && i < end ? ' ' : bytes[i];
        sum += byte;
        signed_sum += (uint64_t)(int8_t)byte; /* some old writers add signed bytes */
    }
    return read_number(header->checksum, sizeof header->checksum, &wanted) && (wanted == sum || wanted == signed_sum);
}

static bool is_blank(const uint8_t *block)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static char *header_path(const tar_header *header)
{
    bool ustar =
        memcmp(header->magic, "ustar", 6) == 0; /* GNU's variant ("ustar  ") uses the prefix for other fields */
    int prefix = ustar ? (int)strnlen(header->prefix, sizeof header->prefix) : 0;
    return fth_format("%.*s%s%.*s", prefix, header->prefix, prefix > 0 ? "/" : "",
                      (int)strnlen(header->name, sizeof header->name), header->name);
}

/* Records such as "30 path=a/b/c.jpg\n". */
static fth_status read_pax(const char *text, size_t length, tar_extra *extra)
{
    size_t at = 0;
    while (at < length) {
        char *end = NULL;
        size_t record = strtoul(text + at, &end, 10);
        const char *word = end + 1, *after = text + at + record;
        if (end == text + at || *end != ' ' || record < 5 || record > length - at || after <= word || after[-1] != '\n')
            return fth_fail(FTH_CORRUPT, "a pax header is damaged");
        const char *equals = memchr(word, '=', (size_t)(after - word));
        size_t name = equals ? (size_t)(equals - word) : 0, value = equals ? (size_t)(after - 1 - (equals + 1)) : 0;
        if (name == 4 && memcmp(word, "path", 4) == 0) {
            free(extra->path);
            extra->path = strndup(equals + 1, value);
            if (!extra->path)
                return fth_fail(FTH_NO_MEMORY, "no memory for a path");
        } else if (name == 4 && memcmp(word, "size", 4) == 0) {
            extra->has_size = true;
            extra->size_bytes = strtoull(equals + 1, NULL, 10);
        } else if (name > 10 && memcmp(word, "GNU.sparse", 10) == 0) {
            extra->sparse = true;
        }
        at += record;
    }
    return FTH_OK;
}

static fth_status read_extra(const fth_tar_input *input, char type, uint64_t offset, uint64_t size_bytes,
                             tar_extra *extra)
{
    fth_status status = FTH_OK;
    const uint8_t *bytes = NULL;
    char *text = NULL;

    FTH_REQUIRE(size_bytes > 0 && size_bytes <= MAX_NAME_BYTES, FTH_CORRUPT, "a long name of %" PRIu64 " bytes",
                size_bytes);
    FTH_TRY(input->at(input->context, offset, (size_t)size_bytes, &bytes));
    FTH_TRY(fth_allocate((size_t)size_bytes + 1, 1, &text));
    memcpy(text, bytes, (size_t)size_bytes);
    if (type == 'L') {
        free(extra->path);
        extra->path = text;
        text = NULL;
    } else if (type == 'x') {
        FTH_TRY(read_pax(text, (size_t)size_bytes, extra));
    }

out:
    free(text);
    return status;
}

static fth_status visit_member(const tar_header *header, const tar_extra *extra, uint64_t offset, uint64_t size_bytes,
                               fth_status (*visit)(void *context, const fth_tar_member *member), void *context)
{
    fth_status status = FTH_OK;
    char *made = extra->path ? NULL : header_path(header);
    fth_tar_member member = {.path = extra->path ? extra->path : made, .offset = offset, .size_bytes = size_bytes};
    size_t length = member.path ? strlen(member.path) : 0;

    FTH_REQUIRE(member.path, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(header->type != 'S' && !extra->sparse, FTH_UNSUPPORTED,
                "%s is stored as a sparse file; pack the images again", member.path);
    if (header->type == '5' || (length > 0 && member.path[length - 1] == '/'))
        member.kind = FTH_TAR_FOLDER;
    else if (header->type != '0' && header->type != '\0' && header->type != '7')
        member.kind = FTH_TAR_LINK;
    FTH_TRY(visit(context, &member));

out:
    free(made);
    return status;
}

static bool has_contents(char type)
{
    return !(type >= '1' && type <= '6');
}

static fth_status scan(const fth_tar_input *input, fth_status (*visit)(void *context, const fth_tar_member *member),
                       void *context, tar_extra *extra)
{
    fth_status status = FTH_OK;
    for (uint64_t at = 0; at < input->size_bytes;) {
        const uint8_t *bytes = NULL;
        tar_header header;
        uint64_t size_bytes = 0;
        FTH_REQUIRE(input->size_bytes - at >= BLOCK, FTH_CORRUPT,
                    "it is cut short at byte %" PRIu64 " (a truncated file)", at);
        FTH_TRY(input->at(input->context, at, BLOCK, &bytes));
        if (is_blank(bytes))
            goto out;
        memcpy(&header, bytes, sizeof header);
        bool valid = checksum_holds(&header) && read_number(header.size, sizeof header.size, &size_bytes);
        FTH_REQUIRE(valid || at > 0, FTH_CORRUPT, "not a tar archive");
        FTH_REQUIRE(valid, FTH_CORRUPT, "damaged header at byte %" PRIu64, at);
        bool describes = header.type == 'L' || header.type == 'K' || header.type == 'x' || header.type == 'g';
        if (!describes && extra->has_size)
            size_bytes = extra->size_bytes;
        if (!has_contents(header.type))
            size_bytes = 0;
        at += BLOCK;
        FTH_REQUIRE(size_bytes <= input->size_bytes - at, FTH_CORRUPT,
                    "it is cut short at byte %" PRIu64 " (a truncated file)", input->size_bytes);
        if (header.type == 'L' || header.type == 'x') {
            FTH_TRY(read_extra(input, header.type, at, size_bytes, extra));
        } else if (!describes) {
            FTH_TRY(visit_member(&header, extra, at, size_bytes, visit, context));
            free(extra->path);
            *extra = (tar_extra){0};
        }
        at += (size_bytes + BLOCK - 1) / BLOCK * BLOCK;
    }

out:
    return status;
}

fth_status fth_tar_scan(const fth_tar_input *input, const char *name,
                        fth_status (*visit)(void *context, const fth_tar_member *member), void *context)
{
    tar_extra extra = {0};
    fth_status status = scan(input, visit, context, &extra);
    free(extra.path);
    return status == FTH_CORRUPT || status == FTH_UNSUPPORTED ? fth_fail_within(status, "%s", name) : status;
}
