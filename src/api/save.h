/* A trained model as a file: for `farthing export` and fth_predictor_save(). */
#ifndef FTH_API_SAVE_H
#define FTH_API_SAVE_H

#include "train/model/classifier.h"

/* "safetensors", "onnx", "huggingface", NULL. */
extern const char *const fth_save_formats[];

/* Writes the model, with what is known about its images or texts and its classes. `path` is the
 * user's (base/output.h); of "huggingface" a folder, which is made. */
fth_status fth_save_model(const fth_classifier *classifier, const char *format, const char *path);

#endif
