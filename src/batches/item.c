/* See item.h. */
#include "batches/item.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"

static const char *const kind_names[FTH_ITEM_KINDS] = {"encoded", "decoded", "batch"};

const char *fth_item_kind_name(fth_item_kind kind)
{
    return kind_names[kind];
}

bool fth_item_kind_find(const char *name, fth_item_kind *kind)
{
    for (int i = 0; i < FTH_ITEM_KINDS; i++)
        if (strcmp(name, kind_names[i]) == 0) {
            *kind = (fth_item_kind)i;
            return true;
        }
    return false;
}

void fth_item_id_format(fth_item_id id, char text[FTH_ITEM_ID_TEXT])
{
    snprintf(text, FTH_ITEM_ID_TEXT, "%016" PRIx64 "%016" PRIx64, id.words[0], id.words[1]);
}

bool fth_item_id_parse(const char *text, fth_item_id *id)
{
    if (strlen(text) != FTH_ITEM_ID_TEXT - 1 || !fth_hex_is_valid(text, FTH_ITEM_ID_TEXT - 1))
        return false;
    *id = (fth_item_id){0};
    for (int i = 0; i < FTH_ITEM_ID_TEXT - 1; i++)
        id->words[i / 16] = id->words[i / 16] << 4 | (uint64_t)fth_hex_digit(text[i]);
    return true;
}

static uint64_t hash_payload(const void *entry, uint64_t payload_bytes, fth_item_id id)
{
    return fth_hash((const char *)entry + sizeof(fth_item_header), payload_bytes, id.words[0]);
}

void fth_item_seal(void *entry, fth_item_id id, fth_item_kind kind, uint64_t payload_bytes, fth_receipt *receipt)
{
    fth_item_header header = {.magic = FTH_ITEM_MAGIC,
                              .id = id,
                              .payload_bytes = payload_bytes,
                              .checksum = hash_payload(entry, payload_bytes, id),
                              .kind = kind};
    memcpy(entry, &header, sizeof header);
    *receipt = (fth_receipt){.id = id, .size_bytes = sizeof header + payload_bytes, .checksum = header.checksum};
}

/* Describes what is wrong with an entry; NULL: nothing. */
static const char *find_damage(const void *entry, uint64_t size_bytes, fth_item_id id, const fth_receipt *receipt)
{
    fth_item_header header;
    if (size_bytes < sizeof header)
        return "too short for an entry";
    memcpy(&header, entry, sizeof header);
    if (header.magic != FTH_ITEM_MAGIC)
        return "not an entry of the batch cache";
    if (!fth_item_id_equal(header.id, id))
        return "it belongs to another item";
    if (header.kind >= FTH_ITEM_KINDS)
        return "unknown kind";
    if (header.payload_bytes != size_bytes - sizeof header)
        return "its length differs from its header";
    if (receipt && (receipt->size_bytes != size_bytes || receipt->checksum != header.checksum))
        return "it differs from its receipt";
    if (hash_payload(entry, header.payload_bytes, id) != header.checksum)
        return "wrong checksum";
    return NULL;
}

fth_status fth_item_check(const void *entry, uint64_t size_bytes, fth_item_id id, const fth_receipt *receipt)
{
    char text[FTH_ITEM_ID_TEXT];
    const char *damage = find_damage(entry, size_bytes, id, receipt);
    if (!damage)
        return FTH_OK;
    fth_item_id_format(id, text);
    return fth_fail(FTH_CORRUPT, "cached item %s of %" PRIu64 " bytes: %s", text, size_bytes, damage);
}
