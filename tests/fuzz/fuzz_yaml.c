/* Fuzzes the options file reader: any bytes as a YAML file, into a table with an option of every
 * type; what is accepted must survive the way through JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

typedef struct settings {
    fth_option_bits set;
    char *model, *optimizer, *resume;
    int64_t epochs;
    double lr, for_s;
    bool json;
} settings;

static const char *const optimizers[] = {"sgd", "adamw", NULL};

#define AT(member) offsetof(settings, member)
static const fth_option rows[] = {
    {.name = "model", .type = FTH_OPTION_TEXT, .offset = AT(model), .identity = true},
    {.name = "epochs", .type = FTH_OPTION_INTEGER, .offset = AT(epochs), .minimum = 0, .maximum = 1000},
    {.name = "lr", .type = FTH_OPTION_NUMBER, .offset = AT(lr), .identity = true},
    {.name = "json", .type = FTH_OPTION_SWITCH, .offset = AT(json)},
    {.name = "optimizer", .type = FTH_OPTION_CHOICE, .offset = AT(optimizer), .choices = optimizers},
    {.name = "for-long", .type = FTH_OPTION_DURATION, .offset = AT(for_s)},
    {.name = "resume", .type = FTH_OPTION_OPTIONAL, .offset = AT(resume)},
};
static const fth_option_table table = {.options = rows, .count = FTH_COUNT_OF(rows), .struct_size = sizeof(settings)};

static void check_json(const settings *values)
{
    settings again;
    char before[17], after[17];
    json_t *json = fth_options_to_json(&table, values, false);
    if (!json || fth_options_set_defaults(&table, &again) != FTH_OK)
        abort();
    if (fth_options_from_json(&table, &again, json, "json") != FTH_OK) {
        fprintf(stderr, "%s\n", fth_error_message());
        abort();
    }
    fth_options_identity(&table, values, before);
    fth_options_identity(&table, &again, after);
    if (strcmp(before, after) != 0)
        abort();
    fth_options_release(&table, &again);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static int descriptor = -1;
    static char path[64];
    settings values;
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz.yaml", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, bytes, size, 0) != (ssize_t)size)
        return 0;
    if (fth_options_set_defaults(&table, &values) != FTH_OK)
        abort();
    if (fth_options_read_yaml(&table, &values, path) == FTH_OK)
        check_json(&values);
    fth_options_release(&table, &values);
    return 0;
}
