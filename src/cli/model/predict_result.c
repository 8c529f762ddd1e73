/* Prints predictions: the most likely classes, labels, or numbers of an image or a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/model/predict_cli.h"
#include "report/report.h"

typedef struct ranked {
    int class_index;
    double probability;
} ranked;

static int likeliest_first(const void *a, const void *b)
{
    const ranked *left = a, *right = b;
    if (left->probability != right->probability)
        return left->probability > right->probability ? -1 : 1;
    return left->class_index - right->class_index;
}

/* By softmax, or each label independently. */
static fth_status rank_classes(const float *logits, int classes, fth_task task, ranked **result)
{
    fth_status status = fth_allocate((size_t)classes, sizeof **result, result);
    if (status != FTH_OK)
        return status;
    float largest = -INFINITY; /* GCC 12 for arm64 fails on a double that is the fmax() of floats */
    double sum = 0;
    for (int i = 0; i < classes; i++)
        largest = fmaxf(largest, logits[i]);
    for (int i = 0; i < classes; i++)
        sum += exp((double)logits[i] - largest);
    for (int i = 0; i < classes; i++)
        (*result)[i] = (ranked){i, task == FTH_TASK_MULTI_LABEL ? 1 / (1 + exp(-(double)logits[i]))
                                                                : exp((double)logits[i] - largest) / sum};
    qsort(*result, (size_t)classes, sizeof **result, likeliest_first);
    return FTH_OK;
}

static void name_class(const fth_model_facts *facts, int class_index, char *text, size_t size)
{
    if (facts->class_names)
        snprintf(text, size, "%s", facts->class_names[class_index]);
    else
        snprintf(text, size, facts->text.task == FTH_TASK_REGRESSION ? "number %d" : "class %d",
                 class_index + (facts->text.task == FTH_TASK_REGRESSION));
}

static json_t *numbers_json(const float *numbers, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_real(numbers[i]));
    return array;
}

/* `order` is NULL of a regression. */
static void print_json(const predict_options *options, const fth_model_facts *facts, const fth_predicted *predicted,
                       const float *logits, const ranked *order)
{
    json_t *predictions = json_array(), *json = json_object();
    char name[512];
    for (int i = 0; order && i < facts->classes && i < options->top; i++) {
        name_class(facts, order[i].class_index, name, sizeof name);
        json_array_append_new(predictions, json_pack("{s:o, s:i, s:f}", "class", fth_cli_json_text(name), "index",
                                                     order[i].class_index, "probability", order[i].probability));
    }
    for (int i = 0; !order && i < facts->classes; i++) {
        name_class(facts, i, name, sizeof name);
        json_array_append_new(predictions,
                              json_pack("{s:o, s:f}", "name", fth_cli_json_text(name), "value", (double)logits[i]));
    }
    if (predicted->image)
        json_object_set_new(json, "image", fth_cli_json_text(predicted->image));
    if (predicted->text)
        json_object_set_new(json, "text", fth_cli_json_text(predicted->text));
    if (predicted->pair)
        json_object_set_new(json, "pair", fth_cli_json_text(predicted->pair));
    json_object_set_new(json, "predictions", predictions);
    if (options->logits)
        json_object_set_new(json, "logits", numbers_json(logits, facts->classes));
    fth_cli_print_json_new(json);
}

/* An image's name, or as much of a text as a line has room for. */
static fth_status print_subject(const fth_predicted *predicted)
{
    fth_status status = FTH_OK;
    char *line = NULL, *printable = NULL;

    if (predicted->image) {
        fth_print_line(stdout, "%s", predicted->image);
        goto out;
    }
    line = fth_format("%s%s%s", predicted->text, predicted->pair ? " | " : "", predicted->pair ? predicted->pair : "");
    printable = line ? fth_printable(line) : NULL;
    FTH_REQUIRE(printable, FTH_NO_MEMORY, "no memory for a text");
    const size_t fitting = fth_text_fit(printable, (size_t)fth_terminal_columns(stdout) - 1);
    printf("%.*s%s\n", (int)fitting, printable, printable[fitting] ? "…" : "");

out:
    free(line);
    free(printable);
    return status;
}

fth_status fth_cli_print_prediction(const predict_options *options, const fth_model_facts *facts,
                                    const fth_predicted *predicted, const float *logits)
{
    fth_status status = FTH_OK;
    ranked *order = NULL;
    char name[512];

    for (int i = 0; i < facts->classes; i++)
        FTH_REQUIRE(isfinite(logits[i]), FTH_DIVERGED, "%s: the model gives no finite numbers",
                    predicted->image ? predicted->image : "a text");
    if (facts->text.task != FTH_TASK_REGRESSION)
        FTH_TRY(rank_classes(logits, facts->classes, facts->text.task, &order));
    if (options->json) {
        print_json(options, facts, predicted, logits, order);
        goto out;
    }
    FTH_TRY(print_subject(predicted));
    for (int i = 0; i < facts->classes && (i < options->top || !order); i++) {
        name_class(facts, order ? order[i].class_index : i, name, sizeof name);
        if (order)
            fth_print_line(stdout, "  %6.2f %%  %s", 100 * order[i].probability, name);
        else
            fth_print_line(stdout, "  %10.4g  %s", (double)logits[i], name);
    }

out:
    free(order);
    return status;
}
