/* Finds the samples that the `__dataset__.py` of an archive selects. It is a Python module that
 * makes a torchvision set and takes a part of it:
 *
 *     _raw_dataset = torchvision.datasets.MNIST("./data", train=True, transform=...)
 *     dataset = torch.utils.data.Subset(_raw_dataset, range(50000, 60000))
 *
 * The text is parsed and never executed. Only a text that certainly means a literal range of a
 * training set is accepted. */
#ifndef FTH_DATA_PYTHON_SUBSET_H
#define FTH_DATA_PYTHON_SUBSET_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define FTH_PYTHON_DATASET "__dataset__.py"
enum { FTH_MAX_PYTHON_SUBSET_BYTES = 64 << 10 };

typedef struct fth_python_subset {
    int64_t first, count; /* count 0: all samples */
} fth_python_subset;

/* The value of `dataset` at the end of a `__dataset__.py`. False if it is not certain; *line is
 * then the first line that is not understood, or the last line. */
bool fth_python_subset_read(const char *text, size_t size_bytes, fth_python_subset *subset, int *line);

/* True if the `__init__.py` beside it only re-exports `dataset` as `Dataset`, or has no
 * statement. */
bool fth_python_passes_dataset_on(const char *text, size_t size_bytes, int *line);

#endif
