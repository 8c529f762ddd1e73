/* Normalization: what becomes of a pixel before a model sees it, (value - mean) / deviation, where
 * the value is in 0..1 and each channel has its own mean and deviation.
 *
 * As text it is a name or the numbers:
 *
 *     imagenet    0.485,0.456,0.406/0.229,0.224,0.225
 *     cifar       0.4914,0.4822,0.4465/0.247,0.2435,0.2616
 *     mnist       0.1307/0.3081
 *     none        0/1: pixels in 0..1
 *     MEAN/STD    one number for every channel (0.5/0.5), or one for each, with commas between
 * them */
#ifndef FTH_DATA_NORMALIZATION_H
#define FTH_DATA_NORMALIZATION_H

#include <jansson.h>

#include "base/base.h"
#include "base/options.h"

enum { FTH_MAX_CHANNELS = 4, FTH_NORMALIZATION_TEXT = 160 };

typedef struct fth_normalization {
    int channels; /* numbers there are; 1: the same for every channel of an image; 0: unknown */
    float mean[FTH_MAX_CHANNELS], deviation[FTH_MAX_CHANNELS];
} fth_normalization;

/* Reads one of the texts above; "" is unknown. */
fth_status fth_normalization_parse(const char *text, fth_normalization *normalization);
fth_status fth_normalization_check(const char *text);
/* Those with a name, for completion of --normalize. */
fth_choice fth_normalization_choice(size_t index); /* the same, for tables of options */

/* Makes it one for images of `channels`. FTH_INVALID if it has numbers for another count of
 * them. */
fth_status fth_normalization_spread(const fth_normalization *normalization, int channels, fth_normalization *spread);

/* True if images of any number of channels come out alike. */
bool fth_normalization_equal(const fth_normalization *a, const fth_normalization *b);

/* The shortest text that is read back as the same numbers: a name where there is one. "" if it is
 * unknown. */
void fth_normalization_format(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT]);
/* The same as numbers for every channel, which are read back with as many channels. */
void fth_normalization_format_numbers(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT]);
/* For messages: "cifar (0.4914,0.4822,0.4465/0.247,0.2435,0.2616)". */
void fth_normalization_describe(const fth_normalization *normalization, char text[2 * FTH_NORMALIZATION_TEXT]);

/* As model files and the parameter server's protocol have it: {"mean": [...], "std": [...]}, a
 * number for each channel. */
json_t *fth_normalization_to_json(const fth_normalization *normalization);
/* False unless it is that, for so many channels. */
bool fth_normalization_from_json(const json_t *json, int channels, fth_normalization *normalization);

/* What models for such images were most likely trained with, where nothing says so: MNIST's for
 * grey images, CIFAR's for small ones in colour and ImageNet's for larger ones. */
fth_normalization fth_normalization_guess(int channels, int height, int width);

#endif
