/* Labelled images: by name, from files, or from arrays in memory. */
#ifndef FARTHING_DATA_H
#define FARTHING_DATA_H

#include <farthing/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fth_split { FTH_TRAIN, FTH_VALIDATION } fth_split;

/* Does not change once made: any number of trainings and threads may use it. It must outlive
 * them. */
typedef struct fth_data fth_data;

/* Opens what `--data` of the program takes: "digits" or "shapes", which are built in; a folder, an
 * archive or an https address of JPEG and PNG files in class folders; a folder of MNIST or CIFAR-10
 * files. Downloads are kept in the cache (~/.cache/farthing, or $XDG_CACHE_HOME). May take as long
 * as reading the folder or the download does. The caller owns *data and frees it with
 * fth_data_free(). */
FTH_API fth_status fth_data_open(const char *address, fth_data **data);

/* Images in memory. */
typedef struct fth_images {
    const uint8_t *pixels; /* (count, channels, height, width), 0 to 255 */
    const int32_t *labels; /* (count), from 0 */
    int64_t count;
} fth_images;

typedef struct fth_images_form {
    const char *name; /* its name in records: letters, digits, '.', '_' and '-'; not that of a built-in set */
    int channels, height, width;
    int classes;
    const char *const *class_names; /* (classes); NULL: "0", "1", ... */
} fth_images_form;

/* Data from arrays. `pixels` are not copied: they must stay as they are until *data is freed.
 * Everything else is copied. If `validation` is NULL, a share of `training` is held out (the option
 * "validation-fraction"). */
FTH_API fth_status fth_data_from_images(const fth_images_form *form, const fth_images *training,
                                        const fth_images *validation, fth_data **data);

/* NULL is fine. */
FTH_API void fth_data_free(fth_data *data);

/* What is in it, before options of a training ("image-size", "transform", "validation-fraction")
 * change that. */
typedef struct fth_data_info {
    const char *name;
    int channels, height, width; /* of images as a network gets them */
    int classes;
    const char *const *class_names;
    int64_t training_count, validation_count;
} fth_data_info;

/* Lent: lives as long as `data`. */
FTH_API const fth_data_info *fth_data_get_info(const fth_data *data);

/* Reads one image, channels * height * width bytes, and its label, which may be NULL. Image files
 * are decoded for it. FTH_INVALID if there is none of that number. */
FTH_API fth_status fth_data_read(const fth_data *data, fth_split split, int64_t index, uint8_t *pixels, int32_t *label);

#ifdef __cplusplus
}
#endif

#endif
