/* See order.h. */
#include "batches/prefetch/order.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/json.h"

/* ---- orders ---- */

json_t *fth_order_save(const fth_order *order)
{
    char id[FTH_ITEM_ID_TEXT];
    fth_item_id_format(order->id, id);
    return json_pack("{s:s, s:s, s:o, s:I}", "id", id, "kind", fth_item_kind_name(order->kind), "spec",
                     fth_job_spec_save(&order->spec), "number", (json_int_t)order->number);
}

fth_status fth_order_load(const json_t *json, fth_order *order)
{
    fth_status status = FTH_OK;
    fth_order loaded = {0};
    const char *id = json_string_value(json_object_get(json, "id"));
    const char *kind = json_string_value(json_object_get(json, "kind"));
    const json_t *number = json_object_get(json, "number");

    FTH_REQUIRE(json_is_object(json), FTH_INVALID, "order: must be a JSON object");
    FTH_REQUIRE(id && fth_item_id_parse(id, &loaded.id), FTH_INVALID, "order: \"id\" must be 32 hex digits");
    FTH_REQUIRE(kind && fth_item_kind_find(kind, &loaded.kind), FTH_INVALID,
                "order: \"kind\" must be encoded, decoded or batch");
    FTH_REQUIRE(json_is_integer(number) && json_integer_value(number) >= 0, FTH_INVALID,
                "order: \"number\" must be a whole number");
    loaded.number = json_integer_value(number);
    loaded.needed_s = fth_clock_seconds(); /* orders arrive in the order of need */
    FTH_TRY(fth_job_spec_load(json_object_get(json, "spec"), &loaded.spec));
    FTH_REQUIRE(loaded.kind == FTH_ITEM_BATCH ||
                    fth_item_id_equal(loaded.id, fth_job_sample_id(&loaded.spec, loaded.kind, loaded.number)),
                FTH_INVALID, "order: item %s is not the %s sample %" PRId64, id, kind, loaded.number);
    *order = loaded;

out:
    return status;
}

/* ---- receipts ---- */

json_t *fth_receipt_save(const fth_receipt *receipt)
{
    char id[FTH_ITEM_ID_TEXT], checksum[17];
    fth_item_id_format(receipt->id, id);
    snprintf(checksum, sizeof checksum, "%016" PRIx64, receipt->checksum);
    return json_pack("[s, I, s]", id, (json_int_t)receipt->size_bytes, checksum);
}

fth_status fth_receipt_load(const json_t *json, fth_receipt *receipt)
{
    fth_status status = FTH_OK;
    fth_receipt loaded = {0};
    const char *id = json_string_value(json_array_get(json, 0));
    const char *checksum = json_string_value(json_array_get(json, 2));
    const json_t *size = json_array_get(json, 1);

    FTH_REQUIRE(json_array_size(json) == 3 && id && fth_item_id_parse(id, &loaded.id) && json_is_integer(size) &&
                    json_integer_value(size) >= (json_int_t)sizeof(fth_item_header) && checksum &&
                    strlen(checksum) == 16 && fth_hex_is_valid(checksum, 16),
                FTH_INVALID, "receipt: must be [id, size, checksum as 16 hex digits]");
    loaded.size_bytes = (uint64_t)json_integer_value(size);
    for (int i = 0; i < 16; i++)
        loaded.checksum = loaded.checksum << 4 | (uint64_t)fth_hex_digit(checksum[i]);
    *receipt = loaded;

out:
    return status;
}

/* ---- results ---- */

json_t *fth_prefetch_result_save(const fth_prefetch_result *result)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:s, s:s}", /**/
                     "receipt", fth_receipt_save(&result->receipt), "fetch_s", fth_json_number(result->fetch_s),
                     "decode_s", fth_json_number(result->decode_s), "transform_s", fth_json_number(result->transform_s),
                     "fetched_bytes", (json_int_t)result->fetched_bytes, "samples", (json_int_t)result->samples,
                     "decoded", (json_int_t)result->decoded, "bad", (json_int_t)result->bad, "bad_name",
                     result->bad_name, "bad_reason", result->bad_reason);
}

static fth_status load_seconds(const json_t *json, const char *key, double *seconds)
{
    const json_t *value = json_object_get(json, key);
    const double most = 1e6; /* of one item */
    *seconds = json_number_value(value);
    if (!json_is_number(value) || !(*seconds >= 0 && *seconds <= most))
        return fth_fail(FTH_INVALID, "preparation: \"%s\" must be a time in seconds", key);
    return FTH_OK;
}

static fth_status load_count(const json_t *json, const char *key, int64_t most, int64_t *count)
{
    const json_t *value = json_object_get(json, key);
    *count = json_integer_value(value);
    if (!json_is_integer(value) || *count < 0 || *count > most)
        return fth_fail(FTH_INVALID, "preparation: \"%s\" must be a whole number up to %" PRId64, key, most);
    return FTH_OK;
}

static fth_status load_text(const json_t *json, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(json, key));
    if (!value || strlen(value) >= size)
        return fth_fail(FTH_INVALID, "preparation: \"%s\" must be a string of at most %zu bytes", key, size - 1);
    snprintf(text, size, "%s", value);
    return FTH_OK;
}

fth_status fth_prefetch_result_load(const json_t *json, fth_prefetch_result *result)
{
    fth_status status = FTH_OK;
    fth_prefetch_result loaded = {0};
    int64_t fetched_bytes = 0;

    FTH_REQUIRE(json_is_object(json), FTH_INVALID, "preparation: must be a JSON object");
    FTH_TRY(fth_receipt_load(json_object_get(json, "receipt"), &loaded.receipt));
    FTH_TRY(load_seconds(json, "fetch_s", &loaded.fetch_s));
    FTH_TRY(load_seconds(json, "decode_s", &loaded.decode_s));
    FTH_TRY(load_seconds(json, "transform_s", &loaded.transform_s));
    FTH_TRY(load_count(json, "fetched_bytes", INT64_C(1) << 50, &fetched_bytes));
    FTH_TRY(load_count(json, "samples", FTH_MAX_JOB_BATCH, &loaded.samples));
    FTH_TRY(load_count(json, "decoded", INT64_C(1) << 40, &loaded.decoded));
    FTH_TRY(load_count(json, "bad", INT64_C(1) << 40, &loaded.bad));
    FTH_TRY(load_text(json, "bad_name", loaded.bad_name, sizeof loaded.bad_name));
    FTH_TRY(load_text(json, "bad_reason", loaded.bad_reason, sizeof loaded.bad_reason));
    loaded.fetched_bytes = (uint64_t)fetched_bytes;
    *result = loaded;

out:
    return status;
}
