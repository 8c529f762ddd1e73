/* What a trained model sees in pictures: classify MODEL.safetensors PICTURE... */
#include <farthing/farthing.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    fth_predictor *predictor = NULL;
    float *probabilities = NULL;
    int failed = 1;

    if (argc < 3) {
        fprintf(stderr, "usage: classify MODEL PICTURE...\n");
        return 2;
    }
    if (fth_predictor_open(argv[1], NULL, NULL, &predictor) != FTH_OK)
        goto out;
    const fth_predictor_info *info = fth_predictor_get_info(predictor);
    probabilities = malloc((size_t)info->classes * sizeof *probabilities);
    for (int i = 2; probabilities && i < argc; i++) {
        if (fth_predictor_run_file(predictor, argv[i], probabilities) != FTH_OK)
            goto out;
        int best = 0;
        for (int j = 1; j < info->classes; j++)
            best = probabilities[j] > probabilities[best] ? j : best;
        printf("%s: %s (%.1f %%)\n", argv[i], info->class_names ? info->class_names[best] : "?",
               100 * probabilities[best]);
    }
    failed = 0;

out:
    if (failed)
        fprintf(stderr, "classify: %s\n", fth_error_message());
    free(probabilities);
    fth_predictor_free(predictor);
    return failed;
}
