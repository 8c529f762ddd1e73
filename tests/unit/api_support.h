/* What tests of the public interface share: a small data set in memory and a small network for
 * it. */
#ifndef TEST_API_SUPPORT_H
#define TEST_API_SUPPORT_H

#include <farthing/farthing.h>

#include "support.h"

enum { API_SIDE = 8, API_IMAGE = API_SIDE * API_SIDE, API_CLASSES = 3, API_TRAINING = 192, API_VALIDATION = 48 };

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        fth_status assert_ok_status = (call);                                                                          \
        if (assert_ok_status != FTH_OK)                                                                                \
            fail_msg("%s: %s", #call, fth_error_message());                                                            \
    } while (0)

/* A bright bar at a place that tells the class, and noise that is the same in every run. */
static inline void api_draw(int number, uint8_t *pixels, int32_t *label)
{
    *label = number % API_CLASSES;
    for (int i = 0; i < API_IMAGE; i++) {
        uint32_t noise = (uint32_t)(number * API_IMAGE + i) * 2654435761U;
        pixels[i] = (uint8_t)((noise >> 24) / 4 + (i / API_SIDE / 3 == *label ? 180 : 0));
    }
}

/* The arrays live as long as the program. */
static inline fth_data *api_data(void)
{
    static uint8_t pixels[(API_TRAINING + API_VALIDATION) * API_IMAGE];
    static int32_t labels[API_TRAINING + API_VALIDATION];
    static const char *const names[] = {"top", "middle", "bottom"};
    const fth_images_form form = {"bars", 1, API_SIDE, API_SIDE, API_CLASSES, names};
    fth_data *data = NULL;
    for (int i = 0; i < API_TRAINING + API_VALIDATION; i++)
        api_draw(i, pixels + i * API_IMAGE, &labels[i]);
    const fth_images training = {pixels, labels, API_TRAINING};
    const fth_images validation = {pixels + API_TRAINING * API_IMAGE, labels + API_TRAINING, API_VALIDATION};
    assert_ok(fth_data_from_images(&form, &training, &validation, &data));
    return data;
}

static inline fth_network *api_network(void)
{
    fth_network *network = NULL;
    assert_ok(fth_network_create("small", 1, API_SIDE, API_SIDE, &network));
    fth_layer x = fth_network_input(network);
    x = fth_network_relu(network, fth_network_convolution(network, x, "conv", 4, 3, 1, 1));
    x = fth_network_max_pool(network, x, 2, 2, 0);
    x = fth_network_dropout(network, fth_network_flatten(network, x), 0.1);
    assert_ok(fth_network_finish(network, fth_network_linear(network, x, "fc", API_CLASSES)));
    return network;
}

/* In the test's folder, with one thread: three epochs of six steps. */
static inline fth_training *api_training(const fth_network *network, const fth_data *data)
{
    fth_training *training = NULL;
    char runs[TEST_MAX_PATH];
    assert_ok(fth_training_create(&training));
    assert_ok(fth_training_use_network(training, network));
    assert_ok(fth_training_use_data(training, data));
    assert_ok(fth_training_set(training, "runs", test_path(runs, "runs")));
    assert_ok(fth_training_set(training, "batch", "32"));
    assert_ok(fth_training_set(training, "lr", "0.05"));
    assert_ok(fth_training_set(training, "epochs", "3"));
    assert_ok(fth_training_set(training, "threads", "1"));
    return training;
}

#endif
