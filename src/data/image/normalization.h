/* Normalization of pixels before a model sees them: (value - mean) / deviation, with values in 0..1
 * and a mean and deviation for each channel.
 *
 * As text it is a name or the numbers:
 *
 *     imagenet    0.485,0.456,0.406/0.229,0.224,0.225
 *     cifar       0.4914,0.4822,0.4465/0.247,0.2435,0.2616
 *     mnist       0.1307/0.3081
 *     none        0/1: pixels in 0..1
 *     MEAN/STD    one number for all channels (0.5/0.5), or one for each, separated by commas */
#ifndef FTH_DATA_NORMALIZATION_H
#define FTH_DATA_NORMALIZATION_H

#include <jansson.h>

#include "base/base.h"
#include "base/options.h"

enum { FTH_MAX_CHANNELS = 4, FTH_NORMALIZATION_TEXT = 160 };

typedef struct fth_normalization {
    int channels; /* how many numbers; 1: the same for every channel; 0: unknown */
    float mean[FTH_MAX_CHANNELS], deviation[FTH_MAX_CHANNELS];
} fth_normalization;

/* Parses one of the texts above; "" is unknown. */
fth_status fth_normalization_parse(const char *text, fth_normalization *normalization);
fth_status fth_normalization_check(const char *text);
fth_choice fth_normalization_choice(size_t index); /* the names, for tables of options */

/* Expands it to `channels` numbers. FTH_INVALID if it has another count of them. */
fth_status fth_normalization_spread(const fth_normalization *normalization, int channels, fth_normalization *spread);

/* True if they normalize all images alike. */
bool fth_normalization_equal(const fth_normalization *a, const fth_normalization *b);

/* The shortest text that parses to the same numbers, a name if possible. "" if it is unknown. */
void fth_normalization_format(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT]);
/* As numbers for every channel, which parse to the same channels. */
void fth_normalization_format_numbers(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT]);
/* For messages: "cifar (0.4914,0.4822,0.4465/0.247,0.2435,0.2616)". */
void fth_normalization_describe(const fth_normalization *normalization, char text[2 * FTH_NORMALIZATION_TEXT]);

/* As in model files and the parameter server's protocol: {"mean": [...], "std": [...]}, with a
 * number for each channel. */
json_t *fth_normalization_to_json(const fth_normalization *normalization);
/* False if the JSON has another form or another number of channels. */
bool fth_normalization_from_json(const json_t *json, int channels, fth_normalization *normalization);

/* The likely normalization of a model that states none: MNIST's for grey images, CIFAR's for small
 * colour images, ImageNet's for larger ones. */
fth_normalization fth_normalization_guess(int channels, int height, int width);

#endif
