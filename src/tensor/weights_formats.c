/* Recognizes a file's format by its content and reads its tensors: safetensors, and PyTorch's files
 * in either container, exported programs. What is recognized and not read is refused by name. */
#include <stdlib.h>
#include <string.h>

#include "tensor/weights_internal.h"
#include "tensor/zip_internal.h"

enum { TAR_MAGIC_AT = 257 };

static fth_status open_safetensors(fth_weights *weights, const void *bytes, size_t size_bytes, const char *origin,
                                   const char *key)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_safetensors_parse(bytes, size_bytes, origin, &weights->safetensors));
    weights->format = "safetensors";
    weights->count = fth_safetensors_count(weights->safetensors);
    FTH_TRY(fth_allocate(weights->count, sizeof *weights->views, &weights->views));
    for (size_t i = 0; i < weights->count; i++)
        weights->views[i] = *fth_safetensors_get(weights->safetensors, i);
    FTH_TRY(fth_weights_copy_names(weights));
    FTH_TRY(fth_weights_choose_part(weights, origin, key));
out:
    return status;
}

static fth_status open_exported(fth_weights *weights, const void *bytes, size_t size_bytes, const char *origin,
                                const char *key)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_exported_archive_parse(bytes, size_bytes, origin, &weights->exported));
    weights->format = "PyTorch's exported program";
    weights->count = fth_exported_archive_state_count(weights->exported);
    FTH_TRY(fth_allocate(weights->count, sizeof *weights->views, &weights->views));
    for (size_t i = 0; i < weights->count; i++)
        weights->views[i] = fth_exported_archive_get_state(weights->exported, i)->view;
    FTH_TRY(fth_weights_copy_names(weights));
    FTH_TRY(fth_weights_choose_part(weights, origin, key));
out:
    return status;
}

/* The classes of what was passed over: "argparse.Namespace, pathlib.PosixPath". */
static char *list_skipped(const fth_pickle *pickle)
{
    enum { SHOWN = 5 };
    size_t shown = 0;
    char *list = fth_format("%s", "");
    for (size_t i = 0; i < pickle->foreign_count && shown <= SHOWN; i++) {
        if (fth_pickle_global_is_plain_data(pickle->foreign[i]))
            continue;
        const char *text = shown < SHOWN ? fth_pickle_global_text(pickle->foreign[i]) : "...";
        char *longer = fth_format("%s%s%s", list, shown ? ", " : "", text);
        free(list);
        list = longer;
        shown++;
    }
    return list;
}

static fth_status open_pth(fth_weights *weights, const void *bytes, size_t size_bytes, const char *origin,
                           const char *key)
{
    fth_status status = FTH_OK;
    fth_pth_tensors tensors;
    if (fth_zip_recognize(bytes, size_bytes))
        FTH_TRY(fth_pth_open_zip(bytes, size_bytes, origin, &weights->pth));
    else
        FTH_TRY(fth_pth_open_legacy(bytes, size_bytes, origin, &weights->pth));
    weights->format = weights->pth->format;
    weights->skipped = list_skipped(weights->pth->pickle);
    FTH_TRY(fth_pth_find_state(weights->pth, key, origin, &weights->place));
    FTH_TRY(fth_pth_read_tensors(weights->pth, weights->place.state, origin, &tensors));
    weights->names = tensors.names;
    weights->views = tensors.views;
    weights->count = tensors.count;
    free(tensors.firsts);
out:
    return status;
}

static bool looks_like_safetensors(const unsigned char *bytes, size_t size_bytes)
{
    uint64_t length;
    if (size_bytes <= SAFETENSORS_LENGTH_BYTES)
        return false;
    memcpy(&length, bytes, sizeof length);
    return length <= SAFETENSORS_MAX_HEADER_BYTES && bytes[SAFETENSORS_LENGTH_BYTES] == '{';
}

static bool begins_with(const unsigned char *bytes, size_t size_bytes, size_t at, const char *text)
{
    return size_bytes >= at + strlen(text) && memcmp(bytes + at, text, strlen(text)) == 0;
}

/* Pickles of protocol 2 begin with 0x80. Older ones begin with any opcode; those that name
 * something are worth reading on, so that the refusal tells what. */
static bool looks_like_pickle(const unsigned char *bytes, size_t size_bytes)
{
    return size_bytes > 2 &&
           (bytes[0] == 0x80 || ((bytes[0] == 'c' || bytes[0] == '(') && memchr(bytes, '\n', size_bytes)));
}

fth_status fth_weights_read(fth_weights *weights, const unsigned char *bytes, size_t size_bytes, const char *origin,
                            const char *key)
{
    if (size_bytes == 0)
        return fth_fail(FTH_CORRUPT, "%s: an empty file", origin);
    if (looks_like_safetensors(bytes, size_bytes)) /* whatever the length's first byte looks like */
        return open_safetensors(weights, bytes, size_bytes, origin, key);
    if (fth_exported_archive_recognize(bytes, size_bytes))
        return open_exported(weights, bytes, size_bytes, origin, key);
    if (fth_zip_recognize(bytes, size_bytes))
        return open_pth(weights, bytes, size_bytes, origin, key);
    if (begins_with(bytes, size_bytes, TAR_MAGIC_AT, "ustar"))
        return fth_fail(FTH_UNSUPPORTED,
                        "%s: a tar archive, as PyTorch wrote before 2017; load it in PyTorch and save it again",
                        origin);
    if (looks_like_pickle(bytes, size_bytes))
        return open_pth(weights, bytes, size_bytes, origin, key);
    if (begins_with(bytes, size_bytes, 0, "version https://git-lfs"))
        return fth_fail(FTH_INVALID, "%s: a Git LFS pointer, not the weights; fetch them with 'git lfs pull'", origin);
    return fth_fail(FTH_INVALID,
                    "%s: neither safetensors nor a file of torch.save() or torch.export.save(): these are what "
                    "weights are read from",
                    origin);
}
