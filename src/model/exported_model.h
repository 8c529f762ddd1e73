/* Networks that PyTorch exported (.pt2), as models.
 *
 * A model is made of a program's text (fth_exported_to_text), which has the network without its
 * weights: a run, a model file and a worker keep the text, and need the .pt2 no more. Callers
 * expect models to live as long as the process, so each text is kept once. */
#ifndef FTH_MODEL_EXPORTED_MODEL_H
#define FTH_MODEL_EXPORTED_MODEL_H

#include "model/model.h"

/* How to export a module, for messages. */
#define FTH_EXPORT_LINE                                                                                                \
    "torch.export.save(torch.export.export(model.train(), (example,), dynamic_shapes=({0: "                            \
    "torch.export.Dim(\"batch\")},)), \"net.pt2\")"

/* True of "net.pt2" and "nets/net.pt2". */
bool fth_exported_model_is_name(const char *name);

/* The model in a file, as it is now; its name is `path`. Any thread, like the next one. */
fth_status fth_exported_model_open(const char *path, const fth_model **model);
/* The model that a text describes; `origin` names it in errors. */
fth_status fth_exported_model_parse(const char *text, size_t size_bytes, const char *name, const char *origin,
                                    const fth_model **model);

/* The text that the model is made of, and its sha256 in hex; NULL of a model that was not
 * exported. */
const char *fth_exported_model_text(const fth_model *model);
const char *fth_exported_model_digest(const fth_model *model);

/* True of a parameter or buffer that belongs to a layer whose module draws new weights in a way
 * that is known (--reinitialize): a convolution, a norm. Others, such as a class token, keep those
 * of the file. */
bool fth_exported_model_draws(const fth_model *model, const char *name);

/* "net.pt2" of "nets/net.pt2": what model files and run names have. Lent from `name`; any other
 * name as it is. */
const char *fth_exported_model_short_name(const char *name);

#endif
