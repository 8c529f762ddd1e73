/* Trained models: predictions, accuracy, and saving them in other formats. */
#ifndef FARTHING_PREDICTOR_H
#define FARTHING_PREDICTOR_H

#include <farthing/data.h>
#include <farthing/network.h>
#include <farthing/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model with its weights. Used by one thread at a time; several predictors may be used at
 * once. */
typedef struct fth_predictor fth_predictor;

/* Opens a model file: safetensors, or a PyTorch checkpoint (.pth), of which nothing is executed.
 * `network` is the one it was trained as, or NULL for a built-in model, which is recognized by the
 * name or the tensors in the file. `options` is NULL, or names and values in turn, ended by NULL:
 * "model", "device", "threads", "normalize", "image-size", as for `farthing predict`. The caller
 * owns *predictor and frees it with fth_predictor_free(). */
FTH_API fth_status fth_predictor_open(const char *path, const fth_network *network, const char *const *options,
                                      fth_predictor **predictor);
/* NULL is fine. */
FTH_API void fth_predictor_free(fth_predictor *predictor);

typedef struct fth_predictor_info {
    const char *model;
    int channels, height, width; /* of the images it takes */
    int classes;
    const char *const *class_names; /* (classes); NULL: the file does not say */
} fth_predictor_info;

/* Lent: lives as long as the predictor. */
FTH_API const fth_predictor_info *fth_predictor_get_info(const fth_predictor *predictor);

/* Predicts images in memory, (count, channels, height, width), 0 to 255, which are normalized as in
 * training: `probabilities` is (count, classes), each row adding up to 1. */
FTH_API fth_status fth_predictor_run(fth_predictor *predictor, const uint8_t *pixels, int64_t count,
                                     float *probabilities);

/* Predicts a JPEG or PNG file, brought to size as in validation: `probabilities` is (classes). */
FTH_API fth_status fth_predictor_run_file(fth_predictor *predictor, const char *path, float *probabilities);

typedef struct fth_score {
    double loss, accuracy;
    int64_t samples;
    double seconds;
} fth_score;

/* Measures the model on the validation images of `data`, which must have its classes, in their
 * order. *score is lent, until the next call or until the predictor is freed. */
FTH_API fth_status fth_predictor_evaluate(fth_predictor *predictor, const fth_data *data, const fth_score **score);

/* Writes the model as another file, whole or not at all: by its ending .onnx (opset 17; "images" to
 * "logits") or .safetensors. */
FTH_API fth_status fth_predictor_save(fth_predictor *predictor, const char *path);

#ifdef __cplusplus
}
#endif

#endif
