/* A whole parameter server in this process. */
#include "support.h"

#include <stdio.h>

#include "parameters/parameters.h"

/* The server applies gradients on the CPU, and its data is to validate with: --device, which a
 * worker takes, must not be opened for either. A device that does not exist shows whether it is. */
static void test_no_accelerator_is_opened(void **state)
{
    (void)state;
    char runs[400];
    fth_train_options train;
    fth_parameters *server = NULL;
    snprintf(runs, sizeof runs, "%s/runs", test_folder);
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &train), FTH_OK);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s}", "model", "linear", "runs", runs, "data", "digits", "device", "absent");
    assert_int_equal(fth_options_from_json(&fth_train_option_table, &train, json, "the test"), FTH_OK);
    json_decref(json);
    fth_parameters_options options = {.train = &train,
                                      .has_data = true,
                                      .consistency = {FTH_CONSISTENCY_ASYNC, 0},
                                      .lease_s = 600,
                                      .durability = FTH_DURABILITY_KILL};
    if (fth_parameters_start(&options, &server) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_true(fth_parameters_get_facts(server).epoch_samples > 0);
    assert_int_equal(fth_parameters_stop(server, false), FTH_OK);
    fth_options_release(&fth_train_option_table, &train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_accelerator_is_opened, test_make_folder, test_remove_folder),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
