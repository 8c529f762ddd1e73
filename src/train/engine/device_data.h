/* A data set kept on the device: batches are made there, from recipes, and only those cross the
 * bus.
 *
 * For sets that are in memory as bytes. The result equals what the loader would have made, bit for
 * bit, so a run may be resumed with or without it. */
#ifndef FTH_TRAIN_DEVICE_DATA_H
#define FTH_TRAIN_DEVICE_DATA_H

#include "backend/plan.h"
#include "data/data.h"

typedef struct fth_device_data fth_device_data;

/* Copies the set to the device, which must outlive the copy. *data is NULL where the device cannot
 * make batches, the set is not plain bytes, it does not fit, or FARTHING_DATA_ON_DEVICE=0. */
fth_status fth_device_data_create(fth_device *device, const fth_dataset *dataset, fth_device_data **data);
void fth_device_data_free(fth_device_data *data);

/* Makes the images of `batch` as the input `images` of `plan`. */
fth_status fth_device_data_gather(const fth_device_data *data, fth_split split, const fth_batch *batch, fth_plan *plan,
                                  fth_value images);

#endif
