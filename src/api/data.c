/* Data, by name or in memory: see farthing/data.h. The set that is opened here is for looking at; a
 * training opens one of its own, with its options. */
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "batches/client/client.h"

static const double usual_validation_fraction = 0.1; /* of the option of that name */

struct fth_data {
    char *name;               /* what --data takes; of arrays, how records call them */
    fth_image_arrays *arrays; /* NULL: by name */
    int32_t *labels[2];       /* of the arrays */
    fth_dataset *dataset;
    fth_data_info info;
};

static void describe(fth_data *data)
{
    const fth_dataset_info *info = fth_dataset_get_info(data->dataset);
    data->info = (fth_data_info){.name = data->name,
                                 .channels = info->channels,
                                 .height = info->height,
                                 .width = info->width,
                                 .classes = info->classes,
                                 .class_names = info->class_names,
                                 .training_count = info->count[FTH_TRAIN],
                                 .validation_count = info->count[FTH_VALIDATION]};
}

fth_status fth_data_open(const char *address, fth_data **result)
{
    fth_status status = FTH_OK;
    fth_data *data = NULL;
    const fth_dataset_options options = {
        .seed = 1, .validation_fraction = usual_validation_fraction, .threads = 2, .schemes = fth_batches_schemes};

    FTH_TRY(fth_api_check_not_null(result, "the place for the data"));
    *result = NULL;
    FTH_REQUIRE(address && *address, FTH_INVALID, "data without a name or address");
    FTH_TRY(fth_allocate(1, sizeof *data, &data));
    data->name = fth_format("%s", address);
    FTH_REQUIRE(data->name, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_dataset_open(address, &options, &data->dataset));
    describe(data);
    *result = data;
    data = NULL;

out:
    fth_data_free(data);
    return status;
}

/* Copies a part's labels, which every training reads again. */
static fth_status copy_part(const fth_images *images, const char *name, int32_t **labels, fth_image_array *part)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(images->count >= 1 && images->pixels && images->labels, FTH_INVALID,
                "%s: pixels, labels or a count are missing", name);
    FTH_TRY(fth_allocate((size_t)images->count, sizeof **labels, labels));
    for (int64_t i = 0; i < images->count; i++)
        (*labels)[i] = images->labels[i];
    *part = (fth_image_array){images->pixels, *labels, images->count};

out:
    return status;
}

fth_status fth_data_from_images(const fth_images_form *form, const fth_images *training, const fth_images *validation,
                                fth_data **result)
{
    fth_status status = FTH_OK;
    fth_data *data = NULL;
    const fth_dataset_options options = {.seed = 1, .validation_fraction = usual_validation_fraction};

    FTH_TRY(fth_api_check_not_null(result, "the place for the data"));
    *result = NULL;
    FTH_TRY(fth_api_check_not_null(form, "the images' form"));
    FTH_TRY(fth_api_check_not_null(training, "the array of training images"));
    FTH_TRY(fth_api_check_name("the data's name", form->name));
    for (const fth_dataset_builtin *each = fth_dataset_builtins; each->name; each++)
        FTH_REQUIRE(strcmp(form->name, each->name) != 0, FTH_INVALID,
                    "%s is the name of a built-in data set; give your data another", form->name);
    FTH_TRY(fth_allocate(1, sizeof *data, &data));
    data->name = fth_format("%s", form->name);
    FTH_REQUIRE(data->name, FTH_NO_MEMORY, "no memory for a name");
    FTH_TRY(fth_allocate(1, sizeof *data->arrays, &data->arrays));
    *data->arrays = (fth_image_arrays){.name = data->name,
                                       .channels = form->channels,
                                       .height = form->height,
                                       .width = form->width,
                                       .classes = form->classes,
                                       .class_names = form->class_names};
    FTH_TRY(copy_part(training, form->name, &data->labels[FTH_TRAIN], &data->arrays->parts[FTH_TRAIN]));
    if (validation)
        FTH_TRY(copy_part(validation, form->name, &data->labels[FTH_VALIDATION], &data->arrays->parts[FTH_VALIDATION]));
    FTH_TRY(fth_dataset_create(data->arrays, &options, &data->dataset));
    data->arrays->class_names = fth_dataset_get_info(data->dataset)->class_names;
    describe(data);
    *result = data;
    data = NULL;

out:
    fth_data_free(data);
    return status;
}

void fth_data_free(fth_data *data)
{
    if (!data)
        return;
    fth_dataset_free(data->dataset);
    free(data->labels[FTH_TRAIN]);
    free(data->labels[FTH_VALIDATION]);
    free(data->arrays);
    free(data->name);
    free(data);
}

const fth_data_info *fth_data_get_info(const fth_data *data)
{
    return data ? &data->info : NULL;
}

fth_status fth_data_read(const fth_data *data, fth_split split, int64_t index, uint8_t *pixels, int32_t *label)
{
    fth_status status = FTH_OK;
    int32_t unused;

    FTH_TRY(fth_api_check_not_null(data, "data"));
    FTH_TRY(fth_api_check_not_null(pixels, "the place for pixels"));
    FTH_REQUIRE(split == FTH_TRAIN || split == FTH_VALIDATION, FTH_INVALID, "%d is neither training nor validation",
                (int)split);
    FTH_TRY(fth_dataset_read(data->dataset, split, index, pixels, label ? label : &unused));

out:
    return status;
}

fth_status fth_api_apply_data(const fth_data *data, fth_train_options *options)
{
    options->own.images = data->arrays;
    return fth_options_set(&fth_train_option_table, options, "data", data->name, "data");
}
