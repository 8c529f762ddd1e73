/* A network of this program's own, trained on the built-in digits, measured, and saved as
 * embed.safetensors and embed.onnx. With an argument it stops after that many steps. */
#include <farthing/farthing.h>
#include <stdio.h>
#include <stdlib.h>

static fth_status build(const fth_data_info *data, fth_network **network)
{
    fth_status status = fth_network_create("embed", data->channels, data->height, data->width, network);
    if (status != FTH_OK)
        return status;
    fth_network *n = *network;
    fth_layer x = fth_network_input(n);
    x = fth_network_relu(n, fth_network_convolution(n, x, "conv1", 16, 3, 1, 1));
    x = fth_network_max_pool(n, x, 2, 2, 0);
    x = fth_network_relu(n, fth_network_convolution(n, x, "conv2", 32, 3, 1, 1));
    x = fth_network_max_pool(n, x, 2, 2, 0);
    x = fth_network_relu(n, fth_network_linear(n, fth_network_flatten(n, x), "fc1", 64));
    x = fth_network_linear(n, fth_network_dropout(n, x, 0.25), "fc2", data->classes);
    return fth_network_finish(n, x);
}

/* Anything but 0 would stop the training. */
static int show(void *context, const fth_training_event *event)
{
    (void)context;
    if (event->kind == FTH_EVENT_EPOCH)
        printf("epoch %.0f: training loss %.4f, validation loss %.4f, accuracy %.2f %%\n", event->epoch, event->loss,
               event->validation_loss, 100 * event->validation_accuracy);
    return 0;
}

int main(int argc, char **argv)
{
    fth_data *data = NULL;
    fth_network *network = NULL;
    fth_training *training = NULL;
    fth_predictor *predictor = NULL;
    const fth_score *score;
    int failed = 1;

    if (fth_data_open("digits", &data) != FTH_OK || build(fth_data_get_info(data), &network) != FTH_OK)
        goto out;
    if (fth_training_create(&training) != FTH_OK || fth_training_use_data(training, data) != FTH_OK ||
        fth_training_use_network(training, network) != FTH_OK ||
        fth_training_set(training, "optimizer", "adamw") != FTH_OK ||
        fth_training_set(training, argc > 1 ? "steps" : "epochs", argc > 1 ? argv[1] : "2") != FTH_OK)
        goto out;
    fth_training_on_event(training, show, NULL);
    if (fth_training_run(training) != FTH_OK)
        goto out;
    const fth_training_result *result = fth_training_get_result(training);
    printf("trained: loss %.4f, accuracy %.2f %%, %lld steps, run %s\n", result->loss, 100 * result->accuracy,
           (long long)result->steps, result->run_folder);

    if (fth_predictor_open(result->last_model, network, NULL, &predictor) != FTH_OK ||
        fth_predictor_evaluate(predictor, data, &score) != FTH_OK ||
        fth_predictor_save(predictor, "embed.safetensors") != FTH_OK ||
        fth_predictor_save(predictor, "embed.onnx") != FTH_OK)
        goto out;
    printf("measured: loss %.4f, accuracy %.2f %%; saved as embed.safetensors and embed.onnx\n", score->loss,
           100 * score->accuracy);
    failed = 0;

out:
    if (failed)
        fprintf(stderr, "embed: %s\n", fth_error_message());
    fth_predictor_free(predictor);
    fth_training_free(training);
    fth_network_free(network);
    fth_data_free(data);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
