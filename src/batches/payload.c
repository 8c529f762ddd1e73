/* See payload.h. The JSON at the beginning of a payload is padded with spaces to align what
 * follows. */
#include "batches/payload.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

enum { BATCH_HEADER_BYTES = 512, NUMBER_TEXT = 24, MAX_METADATA = 3, BATCH_TENSORS = 3 };
/* Room for bad samples: all without name and cause, or some with. */
enum { BAD_BYTES = 1024, BAD_SAMPLE_BYTES = 32, BAD_TEXT = 256 };

/* ---- writing ---- */

static uint64_t align(uint64_t size)
{
    return (size + FTH_ALIGNMENT - 1) / FTH_ALIGNMENT * FTH_ALIGNMENT;
}

/* Puts a header made by fth_safetensors_header() at `payload`, padded to `room` bytes. */
static void place_header(const char *header, size_t header_bytes, uint8_t *payload, size_t room)
{
    uint64_t length = room - sizeof length;
    memcpy(payload, header, header_bytes);
    memset(payload + header_bytes, ' ', room - header_bytes);
    memcpy(payload, &length, sizeof length);
}

static const char *sample_tensor_name(const fth_sample_payload *sample)
{
    return sample->kind == FTH_ITEM_ENCODED ? "file" : sample->planar ? "planes" : "pixels";
}

static fth_shape sample_shape(const fth_sample_payload *sample)
{
    if (sample->kind == FTH_ITEM_ENCODED)
        return FTH_SHAPE((int64_t)sample->size_bytes);
    return sample->planar ? FTH_SHAPE(sample->channels, sample->height, sample->width)
                          : FTH_SHAPE(sample->height, sample->width, sample->channels);
}

static fth_status describe_sample(const fth_sample_payload *sample, char **header, size_t *header_bytes)
{
    fth_status status = FTH_OK;
    fth_tensor_view view = {.name = sample_tensor_name(sample), .dtype = FTH_U8, .shape = sample_shape(sample)};
    char label[NUMBER_TEXT], *name = NULL, *error = NULL;
    fth_metadata_entry metadata[MAX_METADATA] = {{"label", label}};
    size_t metadata_count = 1;

    *header = NULL;
    snprintf(label, sizeof label, "%" PRId32, sample->label);
    if (sample->name) {
        FTH_REQUIRE((name = fth_text_to_utf8(sample->name)), FTH_NO_MEMORY, "no memory for a sample's name");
        metadata[metadata_count++] = (fth_metadata_entry){"name", name};
    }
    if (sample->error) {
        FTH_REQUIRE((error = fth_text_to_utf8(sample->error)), FTH_NO_MEMORY, "no memory for a sample's error");
        metadata[metadata_count++] = (fth_metadata_entry){"error", error};
    }
    FTH_TRY(fth_safetensors_header(&view, sample->error ? 0 : 1, metadata, metadata_count, header, header_bytes));
out:
    free(name);
    free(error);
    return status;
}

uint64_t fth_sample_entry_bytes(const fth_sample_payload *sample)
{
    char *header = NULL;
    size_t header_bytes = 0;
    if (describe_sample(sample, &header, &header_bytes) != FTH_OK)
        return 0;
    free(header);
    return sizeof(fth_item_header) + align(header_bytes) + (sample->error ? 0 : sample->size_bytes);
}

fth_status fth_sample_entry_write(const fth_sample_payload *sample, fth_item_id id, void *entry, fth_receipt *receipt)
{
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t header_bytes = 0;
    fth_shape shape = sample_shape(sample);
    uint64_t size_bytes = sample->error ? 0 : sample->size_bytes;

    FTH_REQUIRE(sample->error || (uint64_t)fth_shape_count(&shape) == size_bytes, FTH_INVALID,
                "a sample of %" PRIu64 " bytes cannot be %d x %d x %d", size_bytes, sample->channels, sample->height,
                sample->width);
    FTH_TRY(describe_sample(sample, &header, &header_bytes));
    uint8_t *payload = (uint8_t *)entry + sizeof(fth_item_header);
    place_header(header, header_bytes, payload, align(header_bytes));
    if (size_bytes > 0)
        memcpy(payload + align(header_bytes), sample->bytes, size_bytes);
    fth_item_seal(entry, id, sample->kind, align(header_bytes) + size_bytes, receipt);
out:
    free(header);
    return status;
}

/* Bytes of the header, which labels follow, then images at a 64-byte boundary. */
static uint64_t batch_header_bytes(int64_t count)
{
    uint64_t labels = (uint64_t)count * sizeof(int64_t);
    return align(BATCH_HEADER_BYTES + labels) - labels;
}

static uint64_t batch_bad_bytes(int64_t count)
{
    return BAD_BYTES + (uint64_t)count * BAD_SAMPLE_BYTES;
}

uint64_t fth_batch_entry_bytes(const fth_batch_payload *batch)
{
    fth_shape images = FTH_SHAPE(batch->count, batch->channels, batch->height, batch->width);
    if (batch->count < 0 || fth_shape_count(&images) > INT64_MAX / 1024)
        return 0;
    return sizeof(fth_item_header) + batch_header_bytes(batch->count) + (uint64_t)batch->count * sizeof(int64_t) +
           (uint64_t)fth_shape_count(&images) * sizeof(float) + batch_bad_bytes(batch->count);
}

static fth_status write_batch_header(const fth_batch_payload *batch, void *entry)
{
    fth_status status = FTH_OK;
    const fth_tensor_view views[BATCH_TENSORS] = {
        {.name = "labels", .dtype = FTH_I64, .shape = FTH_SHAPE(batch->count)},
        {.name = "images",
         .dtype = FTH_F32,
         .shape = FTH_SHAPE(batch->count, batch->channels, batch->height, batch->width)},
        {.name = "bad", .dtype = FTH_U8, .shape = FTH_SHAPE((int64_t)batch_bad_bytes(batch->count))}};
    char number[NUMBER_TEXT], epoch[NUMBER_TEXT], *header = NULL;
    const fth_metadata_entry metadata[] = {{"number", number}, {"epoch", epoch}};
    size_t header_bytes = 0;

    snprintf(number, sizeof number, "%" PRId64, batch->number);
    snprintf(epoch, sizeof epoch, "%" PRId64, batch->epoch);
    FTH_TRY(fth_safetensors_header(views, BATCH_TENSORS, metadata, FTH_COUNT_OF(metadata), &header, &header_bytes));
    FTH_REQUIRE(header_bytes <= BATCH_HEADER_BYTES, FTH_INVALID, "batch %" PRId64 " has too large a shape",
                batch->number);
    place_header(header, header_bytes, (uint8_t *)entry + sizeof(fth_item_header), batch_header_bytes(batch->count));
out:
    free(header);
    return status;
}

fth_status fth_batch_entry_begin(const fth_batch_payload *batch, void *entry, uint64_t size_bytes, float **images,
                                 int64_t **labels)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(batch->count > 0 && batch->channels > 0 && batch->height > 0 && batch->width > 0, FTH_INVALID,
                "batch %" PRId64 " is empty", batch->number);
    FTH_REQUIRE(size_bytes == fth_batch_entry_bytes(batch), FTH_INVALID,
                "batch %" PRId64 " takes %" PRIu64 " bytes, not %" PRIu64, batch->number, fth_batch_entry_bytes(batch),
                size_bytes);
    FTH_TRY(write_batch_header(batch, entry));
    uint8_t *data = (uint8_t *)entry + sizeof(fth_item_header) + batch_header_bytes(batch->count);
    *labels = (int64_t *)data;
    *images = (float *)(data + (uint64_t)batch->count * sizeof **labels);
    memset((uint8_t *)entry + size_bytes - batch_bad_bytes(batch->count), ' ', batch_bad_bytes(batch->count));
    *(fth_item_header *)entry = (fth_item_header){.kind = (uint32_t)FTH_ITEM_BATCH}; /* until it is sealed */
out:
    return status;
}

/* The same list, with names and causes cut to at most `longest` bytes, between characters. */
static char *shorten_bad(const json_t *list, size_t longest)
{
    json_t *shorter = json_array();
    size_t i;
    json_t *bad;
    json_array_foreach(list, i, bad)
    {
        char texts[2][BAD_TEXT + 1];
        for (size_t j = 0; j < 2; j++) {
            const char *text = json_string_value(json_array_get(bad, j + 1));
            size_t length = text ? strlen(text) : 0;
            if (length > longest)
                for (length = longest; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
                    length--;
            snprintf(texts[j], sizeof texts[j], "%.*s", (int)length, text ? text : "");
        }
        json_array_append_new(shorter,
                              json_pack("[I, s, s]", json_integer_value(json_array_get(bad, 0)), texts[0], texts[1]));
    }
    char *text = json_dumps(shorter, JSON_COMPACT);
    json_decref(shorter);
    return text;
}

/* Writes the list into its room, padded with spaces. */
static fth_status write_bad(const char *bad, int64_t count, uint8_t *room)
{
    fth_status status = FTH_OK;
    size_t length = strlen(bad);
    json_t *list = NULL;
    char *text = NULL;

    for (size_t longest = BAD_TEXT; length > batch_bad_bytes(count); longest = longest > 0 ? longest * 3 / 4 : 0) {
        if (!list)
            list = json_loads(bad, 0, NULL);
        FTH_REQUIRE(json_is_array(list) && json_array_size(list) <= (size_t)count, FTH_INVALID,
                    "no list of at most %" PRId64 " bad samples", count);
        free(text);
        FTH_REQUIRE((text = shorten_bad(list, longest)), FTH_NO_MEMORY, "no memory for a list of bad samples");
        length = strlen(text);
        FTH_REQUIRE(longest > 0 || length <= batch_bad_bytes(count), FTH_INVALID, "no list of bad samples");
    }
    memcpy(room, text ? text : bad, length);
out:
    free(text);
    json_decref(list);
    return status;
}

fth_status fth_batch_entry_finish(void *entry, uint64_t size_bytes, fth_item_id id, const char *bad,
                                  fth_receipt *receipt)
{
    fth_status status = FTH_OK;
    fth_batch_payload batch;
    char *text = NULL;

    FTH_TRY(fth_batch_entry_read(entry, size_bytes, &batch, &text));
    if (bad)
        FTH_TRY(write_bad(bad, batch.count, (uint8_t *)entry + size_bytes - batch_bad_bytes(batch.count)));
    fth_item_seal(entry, id, FTH_ITEM_BATCH, size_bytes - sizeof(fth_item_header), receipt);
out:
    free(text);
    return status;
}

/* ---- reading ---- */

static fth_status read_number(const fth_safetensors *tensors, const char *key, int64_t least, int64_t most,
                              int64_t *number)
{
    const char *text = fth_safetensors_metadata(tensors, key);
    char *end = NULL;
    errno = 0;
    *number = text && *text ? strtoll(text, &end, 10) : 0;
    if (!end || *end || errno || *number < least || *number > most)
        return fth_fail(FTH_CORRUPT, "cached item: its %s is not a number, or out of range", key);
    return FTH_OK;
}

/* Whether a tensor has that type and rank. */
static fth_status find_tensor(const fth_safetensors *tensors, const char *name, fth_dtype dtype, int rank,
                              const fth_tensor_view **tensor)
{
    *tensor = fth_safetensors_find(tensors, name);
    if (!*tensor || (*tensor)->dtype != dtype || (*tensor)->shape.rank != rank)
        return fth_fail(FTH_CORRUPT, "cached item: no tensor '%s' of the right type and rank", name);
    return FTH_OK;
}

/* Dimension i as a positive int. */
static fth_status read_dimension(const fth_tensor_view *tensor, int i, int *value)
{
    int64_t dim = tensor->shape.dims[i];
    if (dim < 1 || dim > INT_MAX)
        return fth_fail(FTH_CORRUPT, "cached item: tensor '%s' has a dimension of %" PRId64, tensor->name, dim);
    *value = (int)dim;
    return FTH_OK;
}

/* Copies texts (NULL stays NULL) into one block of memory. */
static fth_status copy_texts(const char *texts[], size_t count, char **block)
{
    size_t size = 1;
    for (size_t i = 0; i < count; i++)
        size += texts[i] ? strlen(texts[i]) + 1 : 0;
    fth_status status = fth_allocate(size, 1, block);
    char *at = *block;
    for (size_t i = 0; status == FTH_OK && i < count; i++) {
        if (!texts[i])
            continue;
        size_t length = strlen(texts[i]) + 1;
        texts[i] = memcpy(at, texts[i], length);
        at += length;
    }
    return status;
}

static fth_status open_payload(const void *entry, uint64_t size_bytes, fth_item_header *header,
                               fth_safetensors **tensors)
{
    *tensors = NULL;
    if (size_bytes < sizeof *header)
        return fth_fail(FTH_CORRUPT, "cached item: only %" PRIu64 " bytes", size_bytes);
    memcpy(header, entry, sizeof *header);
    fth_status status = fth_safetensors_parse((const uint8_t *)entry + sizeof *header, size_bytes - sizeof *header,
                                              "cached item", tensors);
    return status == FTH_UNSUPPORTED ? FTH_CORRUPT : status;
}

static fth_status read_pixels(const fth_safetensors *tensors, fth_sample_payload *sample)
{
    fth_status status = FTH_OK;
    const fth_tensor_view *tensor;
    sample->planar = fth_safetensors_find(tensors, "planes") != NULL;
    FTH_TRY(find_tensor(tensors, sample_tensor_name(sample), FTH_U8, 3, &tensor));
    FTH_TRY(read_dimension(tensor, sample->planar ? 0 : 2, &sample->channels));
    FTH_TRY(read_dimension(tensor, sample->planar ? 1 : 0, &sample->height));
    FTH_TRY(read_dimension(tensor, sample->planar ? 2 : 1, &sample->width));
    sample->bytes = tensor->data;
    sample->size_bytes = (uint64_t)fth_shape_count(&tensor->shape);
out:
    return status;
}

fth_status fth_sample_entry_read(const void *entry, uint64_t size_bytes, fth_sample_payload *sample, char **text)
{
    fth_status status = FTH_OK;
    fth_item_header header;
    fth_safetensors *tensors = NULL;
    const fth_tensor_view *tensor;
    int64_t label = 0;

    *text = NULL;
    *sample = (fth_sample_payload){0};
    FTH_TRY(open_payload(entry, size_bytes, &header, &tensors));
    FTH_REQUIRE(header.kind == FTH_ITEM_ENCODED || header.kind == FTH_ITEM_DECODED, FTH_CORRUPT,
                "cached item: not a sample");
    sample->kind = (fth_item_kind)header.kind;
    FTH_TRY(read_number(tensors, "label", INT32_MIN, INT32_MAX, &label));
    sample->label = (int32_t)label;
    const char *texts[] = {fth_safetensors_metadata(tensors, "name"), fth_safetensors_metadata(tensors, "error")};
    if (texts[1]) {
        FTH_REQUIRE(fth_safetensors_count(tensors) == 0, FTH_CORRUPT, "cached item: a sample and an error at once");
    } else if (sample->kind == FTH_ITEM_DECODED) {
        FTH_TRY(read_pixels(tensors, sample));
    } else {
        FTH_TRY(find_tensor(tensors, "file", FTH_U8, 1, &tensor));
        sample->bytes = tensor->data;
        sample->size_bytes = (uint64_t)tensor->shape.dims[0];
    }
    FTH_TRY(copy_texts(texts, FTH_COUNT_OF(texts), text));
    sample->name = texts[0];
    sample->error = texts[1];
out:
    fth_safetensors_free(tensors);
    return status;
}

fth_status fth_batch_entry_read(const void *entry, uint64_t size_bytes, fth_batch_payload *batch, char **text)
{
    fth_status status = FTH_OK;
    fth_item_header header;
    fth_safetensors *tensors = NULL;
    const fth_tensor_view *images, *labels, *bad;

    *text = NULL;
    *batch = (fth_batch_payload){0};
    FTH_TRY(open_payload(entry, size_bytes, &header, &tensors));
    FTH_REQUIRE(header.kind == FTH_ITEM_BATCH, FTH_CORRUPT, "cached item: not a batch");
    FTH_TRY(find_tensor(tensors, "labels", FTH_I64, 1, &labels));
    FTH_TRY(find_tensor(tensors, "images", FTH_F32, 4, &images));
    FTH_TRY(find_tensor(tensors, "bad", FTH_U8, 1, &bad));
    FTH_TRY(read_dimension(images, 1, &batch->channels));
    FTH_TRY(read_dimension(images, 2, &batch->height));
    FTH_TRY(read_dimension(images, 3, &batch->width));
    batch->count = images->shape.dims[0];
    FTH_REQUIRE(batch->count > 0 && labels->shape.dims[0] == batch->count, FTH_CORRUPT,
                "cached item: %" PRId64 " labels for %" PRId64 " images", labels->shape.dims[0], batch->count);
    batch->images = images->data;
    batch->labels = labels->data;
    FTH_REQUIRE((uintptr_t)batch->images % _Alignof(float) == 0 && (uintptr_t)batch->labels % _Alignof(int64_t) == 0,
                FTH_CORRUPT, "cached item: images or labels are not aligned");
    FTH_TRY(read_number(tensors, "number", 0, INT64_MAX, &batch->number));
    FTH_TRY(read_number(tensors, "epoch", 0, INT64_MAX, &batch->epoch));
    size_t length = (size_t)bad->shape.dims[0];
    while (length > 0 && ((const char *)bad->data)[length - 1] == ' ')
        length--;
    FTH_TRY(fth_allocate(length + 1, 1, text));
    memcpy(*text, bad->data, length);
    batch->bad = length > 0 ? *text : NULL;
out:
    fth_safetensors_free(tensors);
    return status;
}
