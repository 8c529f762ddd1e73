/* Transforms: numbers from torchvision 0.29 (functional, float tensors, antialias=True), the
 * geometry of every step, and purity. */
#include "data/image/image_set.h"
#include "test_data_pictures.h"

#include <math.h>

/* Of a picture of wild(): resize(7x5 to 2x3), the first two rows of resize(7x5 to 9x6),
 * center_crop(resize(9x12, 6), 5), and adjust_brightness(1.4), adjust_contrast(0.6),
 * adjust_saturation(1.7), adjust_hue(0.13), adjust_hue(-0.41) of 3x2. */
static const float shrunk[] = {101.797f, 150.641f, 134.165f, 125.364f, 129.206f, 109.159f,
                               135.282f, 133.096f, 107.171f, 143.351f, 150.784f, 124.784f,
                               122.841f, 102.794f, 121.189f, 144.801f, 109.425f, 137.857f};
static const float grown[] = {0.0f,    24.6667f, 53.4444f, 82.2222f, 111.0f,  139.778f, 168.556f, 197.333f, 222.0f,
                              75.75f,  100.417f, 129.194f, 157.972f, 186.75f, 215.528f, 137.639f, 81.0833f, 105.75f,
                              59.0f,   83.6667f, 112.444f, 141.222f, 170.0f,  198.778f, 227.556f, 171.0f,   25.0f,
                              134.75f, 159.417f, 188.194f, 174.306f, 53.75f,  82.5278f, 111.306f, 118.75f,  100.75f,
                              118.0f,  142.667f, 171.444f, 200.222f, 229.0f,  58.6667f, 30.5556f, 59.3333f, 84.0f,
                              193.75f, 90.4167f, 55.1944f, 83.9722f, 112.75f, 91.75f,   106.306f, 135.083f, 159.75f};
static const float centre[] = {
    111.764f, 135.222f, 112.815f, 145.086f, 87.9136f, 158.653f, 112.185f, 99.2593f, 128.37f,  172.333f, 148.097f,
    125.333f, 150.333f, 113.074f, 119.111f, 116.764f, 111.778f, 127.296f, 150.086f, 92.9136f, 145.319f, 143.889f,
    149.926f, 109.506f, 140.827f, 142.319f, 137.333f, 162.333f, 125.074f, 121.63f,  128.764f, 120.617f, 123.494f,
    162.086f, 104.914f, 157.319f, 140.086f, 82.9136f, 121.506f, 124.383f, 143.764f, 123.37f,  167.333f, 130.074f,
    107.667f, 150.986f, 108.074f, 114.111f, 143.222f, 120.815f, 115.986f, 152.086f, 94.9136f, 133.506f, 136.383f,
    102.431f, 135.37f,  131.926f, 94.6667f, 119.667f, 162.986f, 120.074f, 116.63f,  145.741f, 132.815f, 120.986f,
    157.086f, 99.9136f, 132.185f, 109.778f, 67.7639f, 116.506f, 147.827f, 145.333f, 122.926f};
static const float bright[] = {0.0f,      0.203137f, 0.406275f, 0.55451f,  0.757647f, 0.960784f,
                               0.323922f, 0.527059f, 0.730196f, 0.878431f, 1.0f,      1.0f,
                               0.647843f, 0.85098f,  1.0f,      1.0f,      0.0f,      0.203137f};
static const float contrast[] = {0.197409f, 0.284468f, 0.371527f, 0.435056f, 0.522115f, 0.609174f,
                                 0.336233f, 0.423291f, 0.51035f,  0.57388f,  0.660938f, 0.747997f,
                                 0.475056f, 0.562115f, 0.649174f, 0.712703f, 0.197409f, 0.284468f};
static const float saturation[] = {0.0f,      0.0131102f, 0.158218f, 0.264108f, 0.489329f, 0.634438f,
                                   0.261335f, 0.406444f,  0.551552f, 0.657441f, 0.882663f, 1.0f,
                                   0.654669f, 0.799777f,  0.944885f, 1.0f,      0.0f,      0.0f};
static const float hue[] = {0.129569f, 0.274667f, 0.419765f, 0.525647f, 0.0f,       0.145098f,
                            0.0f,      0.145098f, 0.290196f, 0.396078f, 0.772549f,  0.917647f,
                            0.462745f, 0.607843f, 0.752941f, 0.858824f, 0.0614117f, 0.20651f};
static const float hue2[] = {0.444236f, 0.589334f, 0.734432f, 0.840314f, 0.648549f, 0.793647f,
                             0.462745f, 0.607843f, 0.752941f, 0.858824f, 0.0f,      0.145098f,
                             0.0f,      0.145098f, 0.290196f, 0.396078f, 0.772549f, 0.917647f};

static const float ones[3] = {1, 1, 1}, zeros[3] = {0, 0, 0};

static fth_picture make_picture(int width, int height)
{
    uint8_t *pixels = calloc((size_t)width * (size_t)height * 3 + FTH_PICTURE_SLACK, 1);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                pixels[(y * width + x) * 3 + c] = wild(x, y, c);
    return (fth_picture){.pixels = pixels, .stride = (size_t)width * 3, .width = width, .height = height};
}

static void apply(const char *text, int out_width, int out_height, fth_random_key key, const fth_picture *picture,
                  float *planes)
{
    fth_transform transform;
    fth_geometry geometry;
    fth_resampler resampler = {0};
    assert_int_equal(fth_transform_parse(text, &transform), FTH_OK);
    transform.width = out_width;
    transform.height = out_height;
    fth_geometry_plan(&transform, picture->width, picture->height, key, &geometry);
    assert_int_equal(fth_taps_fill(&resampler.x, &geometry.x, geometry.flip), FTH_OK);
    assert_int_equal(fth_taps_fill(&resampler.y, &geometry.y, false), FTH_OK);
    assert_true(resampler.x.low >= 0 && resampler.x.high <= picture->width);
    assert_true(resampler.y.low >= 0 && resampler.y.high <= picture->height);
    assert_int_equal(fth_resample(&resampler, picture, out_width, out_height, ones, zeros, planes), FTH_OK);
    fth_resampler_free(&resampler);
}

static void assert_close(const float *values, const float *wanted, size_t count, float tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(values[i] - wanted[i]) <= tolerance))
            fail_msg("value %zu is %g, not %g", i, (double)values[i], (double)wanted[i]);
}

static void resamples_as_torchvision(void **state)
{
    (void)state;
    float planes[1024];
    fth_picture picture = make_picture(7, 5);
    /* float32 sums of some bytes; the reference is printed with six digits */
    apply("resize=3x2", 2, 3, (fth_random_key){0}, &picture, planes);
    assert_close(planes, shrunk, FTH_COUNT_OF(shrunk), 2e-3f);
    apply("resize=6x9", 9, 6, (fth_random_key){0}, &picture, planes);
    for (size_t c = 0; c < 3; c++)
        assert_close(planes + c * 54, grown + c * 18, 18, 2e-3f);
    free((void *)picture.pixels);
    picture = make_picture(9, 12);
    apply("resize=6,centre-crop=5", 5, 5, (fth_random_key){0}, &picture, planes);
    assert_close(planes, centre, FTH_COUNT_OF(centre), 2e-3f);
    free((void *)picture.pixels);
}

/* Images in memory, plane by plane, come out as the same image decoded from a file does. */
static void planes_are_resampled_as_pictures_are(void **state)
{
    (void)state;
    enum { WIDTH = 13, HEIGHT = 17, SIDE = 11 };
    static const char *const texts[] = {"random-resized-crop=11,flip", "resize=14,centre-crop=11", "pad-crop=3,flip",
                                        "random-resized-crop=11:0.3,flip,colour-jitter=0.4:0.4:0.4:0.1"};
    const fth_normalization normalization = {3, {0.1f, 0.2f, 0.3f}, {0.5f, 0.25f, 2}};
    float planes[3 * SIDE * SIDE], wanted[3 * SIDE * SIDE];
    uint8_t pixels[3 * WIDTH * HEIGHT];
    fth_image_worker worker = {0};
    fth_picture picture = make_picture(WIDTH, HEIGHT);
    for (int i = 0; i < 3 * WIDTH * HEIGHT; i++)
        pixels[i] = wild(i % WIDTH, i / WIDTH % HEIGHT, i / WIDTH / HEIGHT);
    const fth_raw_sample image = {
        .bytes = pixels, .size_bytes = sizeof pixels, .width = WIDTH, .height = HEIGHT, .channels = 3, .planar = true};
    for (uint64_t i = 0; i < 40 * FTH_COUNT_OF(texts); i++) {
        const char *text = texts[i % FTH_COUNT_OF(texts)];
        fth_transform transform;
        fth_random_key key = {fth_random_mix(i)};
        assert_int_equal(fth_transform_parse(text, &transform), FTH_OK);
        transform.width = transform.height = SIDE;
        assert_int_equal(fth_raw_sample_transform(&image, &worker, &transform, &normalization, key, planes), FTH_OK);
        apply(text, SIDE, SIDE, key, &picture, wanted);
        for (int j = 0; j < 3 * SIDE * SIDE; j++)
            wanted[j] /= 255;
        const fth_transform_step *last = &transform.steps[transform.step_count - 1];
        if (last->kind == FTH_TRANSFORM_COLOUR_JITTER)
            fth_colour_jitter(last, fth_random_fork(key, (uint64_t)transform.step_count - 1), 3, SIDE * SIDE, wanted);
        fth_colour_normalize(&normalization, SIDE * SIDE, wanted);
        assert_close(planes, wanted, FTH_COUNT_OF(planes), 2e-5f); /* a few roundings of values up to 10 */
    }
    fth_resampler_free(&worker.resampler);
    free((void *)picture.pixels);
}

/* Grey images stay grey: brightness and contrast as torchvision has them for one channel, and
 * nothing else. */
static void grey_has_neither_saturation_nor_hue(void **state)
{
    (void)state;
    float plane[] = {0, 0.25f, 0.5f, 1};
    const float kept[] = {0, 0.25f, 0.5f, 1}, brighter[] = {0, 0.5f, 1, 1},
                flatter[] = {0.3125f, 0.5625f, 0.8125f, 0.8125f};
    fth_colour_adjust(2, 0.2f, 1, 4, plane);
    fth_colour_adjust(3, 0.4f, 1, 4, plane);
    assert_close(plane, kept, 4, 0);
    fth_colour_adjust(0, 2, 1, 4, plane);
    assert_close(plane, brighter, 4, 0);
    fth_colour_adjust(1, 0.5f, 1, 4, plane);
    assert_close(plane, flatter, 4, 1e-6f);
}

static void adjusts_colours_as_torchvision(void **state)
{
    (void)state;
    static const struct {
        int which;
        float factor;
        const float *wanted;
    } cases[] = {{0, 1.4f, bright}, {1, 0.6f, contrast}, {2, 1.7f, saturation}, {3, 0.13f, hue}, {3, -0.41f, hue2}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        float planes[18];
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < 2; y++)
                for (int x = 0; x < 3; x++)
                    planes[c * 6 + y * 3 + x] = (float)wild(x, y, c) / 255;
        fth_colour_adjust(cases[i].which, cases[i].factor, 3, 6, planes);
        assert_close(planes, cases[i].wanted, 18, 5e-6f);
    }
}

/* What a pixel of the output shows, in a picture whose pixels are all different. */
static void crops_pads_and_flips_exactly(void **state)
{
    (void)state;
    enum { SIDE = 16, PADDING = 3 };
    float planes[3 * SIDE * SIDE];
    fth_picture picture = make_picture(SIDE, SIDE);
    bool seen[2 * PADDING + 1][2 * PADDING + 1][2] = {0};
    for (uint64_t sample = 0; sample < 2000; sample++) {
        apply("pad-crop=3,flip", SIDE, SIDE, (fth_random_key){fth_random_mix(sample)}, &picture, planes);
        int matches = 0, places[3] = {0};
        for (int dy = -PADDING; dy <= PADDING; dy++)
            for (int dx = -PADDING; dx <= PADDING; dx++)
                for (int flip = 0; flip < 2; flip++) {
                    bool equal = true;
                    for (int i = 0; i < 3 * SIDE * SIDE && equal; i++) {
                        int x = i % SIDE, y = i / SIDE % SIDE + dy, c = i / SIDE / SIDE;
                        x = (flip ? SIDE - 1 - x : x) + dx;
                        bool inside = x >= 0 && x < SIDE && y >= 0 && y < SIDE;
                        equal = planes[i] == (inside ? (float)wild(x, y, c) : 0);
                    }
                    if (equal) {
                        matches++;
                        places[0] = dy + PADDING, places[1] = dx + PADDING, places[2] = flip;
                    }
                }
        assert_int_equal(matches, 1);
        seen[places[0]][places[1]][places[2]] = true;
    }
    for (int i = 0; i < 2 * (2 * PADDING + 1) * (2 * PADDING + 1); i++)
        assert_true(((bool *)seen)[i]);
    free((void *)picture.pixels);
}

static void crops_randomly_as_torchvision(void **state)
{
    (void)state;
    fth_transform transform;
    double areas = 0, ratios = 0;
    enum { DRAWS = 4000 };
    assert_int_equal(fth_transform_parse("random-resized-crop=224", &transform), FTH_OK);
    for (uint64_t i = 0; i < DRAWS; i++) {
        fth_geometry geometry;
        fth_geometry_plan(&transform, 500, 375, (fth_random_key){fth_random_mix(i)}, &geometry);
        double w = geometry.x.high - geometry.x.low, h = geometry.y.high - geometry.y.low;
        assert_true(geometry.x.low >= 0 && geometry.x.high <= 500 && geometry.y.low >= 0 && geometry.y.high <= 375);
        assert_true(w / h > 0.73 && w / h < 1.36); /* sides are whole pixels */
        assert_true(w * h / (500 * 375) > 0.078);
        assert_true(geometry.x.size == 224 && geometry.y.count == 224);
        areas += w * h / (500 * 375);
        ratios += log(w / h);
    }
    /* Means over 50,000 draws of RandomResizedCrop.get_params for that size; within 4 standard
     * errors. */
    assert_true(fabs(areas / DRAWS - 0.4325) < 4 * 0.216 / sqrt(DRAWS));
    assert_true(fabs(ratios / DRAWS - 0.0312) < 4 * 0.164 / sqrt(DRAWS));
    fth_geometry geometry; /* so long that no try fits: the middle, as far as the ratio allows */
    fth_geometry_plan(&transform, 3000, 30, (fth_random_key){7}, &geometry);
    assert_true(geometry.x.high - geometry.x.low == 40 && geometry.x.low == 1480 && geometry.y.high == 30);
}

static void other_sizes_are_fitted(void **state)
{
    (void)state;
    float planes[3 * 8 * 8];
    static const int sizes[][2] = {{1, 1}, {8, 9}, {3, 100}, {100, 3}, {16, 16}, {1, 4000}};
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++) {
        fth_picture picture = make_picture(sizes[i][0], sizes[i][1]);
        apply("pad-crop=2,flip", 8, 8, (fth_random_key){3}, &picture, planes);
        apply("", 8, 8, (fth_random_key){3}, &picture, planes);
        apply("centre-crop=8", 8, 8, (fth_random_key){3}, &picture, planes);
        apply("resize=12,centre-crop=8", 8, 8, (fth_random_key){3}, &picture, planes);
        apply("random-resized-crop=8:0.5", 8, 8, (fth_random_key){3}, &picture, planes);
        free((void *)picture.pixels);
    }
}

static void jitter_is_pure_and_bounded(void **state)
{
    (void)state;
    fth_transform transform;
    float first[18], again[18];
    int different = 0;
    assert_int_equal(fth_transform_parse("colour-jitter=0.4:0.4:0.4:0.1", &transform), FTH_OK);
    for (uint64_t i = 0; i < 200; i++) {
        for (int k = 0; k < 18; k++)
            first[k] = again[k] = (float)(k * 13 % 18) / 17;
        fth_random_key key = {fth_random_mix(i)};
        fth_colour_jitter(transform.steps, key, 3, 6, first);
        fth_colour_jitter(transform.steps, key, 3, 6, again);
        assert_memory_equal(first, again, sizeof first);
        for (int k = 0; k < 18; k++)
            assert_true(first[k] >= 0 && first[k] <= 1);
        different += fabsf(first[3] - 3 * 13 % 18 / 17.0f) > 1e-3f;
    }
    assert_true(different > 150);
}

static void refuses_bad_texts(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"resize", "resize=256"},
        {"resize=0", "resize=256"},
        {"resize=1e9", "resize=256"},
        {"resize=12.5", "resize=256"},
        {"rezise=4", "did you mean resize"},
        {"flip,flip", "twice"},
        {"centre-crop=5,resize=7", "first"},
        {"random-resized-crop=0", "random-resized-crop=224"},
        {"random-resized-crop=10:2", "random-resized-crop=224"},
        {"normalize=minst", "imagenet, cifar, mnist, none or MEAN/STD"},
        {"normalize", "normalize=imagenet"},
        {"normalize=none,normalize=none", "once"},
        {"normalize=0.5,0.5/0.5,flip", "2 means and 1 deviation"},
        {"colour-jitter=0:0:0:0.6", "colour-jitter=0.4"},
        {"flip=2", "flip"},
        {"pad-crop=-1", "pad-crop=4"},
        {"pad-crop=nan", "pad-crop=4"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_transform_check(bad[i][0]), FTH_INVALID);
        assert_message_has(bad[i][1]);
    }
    assert_int_equal(fth_transform_check("random-resized-crop=224:0.2, flip, colour-jitter=0.4, normalize=cifar"),
                     FTH_OK);
    assert_int_equal(fth_transform_check("normalize=0.5,.5,-0.5/1,2,3,flip"), FTH_OK);
    assert_int_equal(fth_transform_check(""), FTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resamples_as_torchvision),
        cmocka_unit_test(planes_are_resampled_as_pictures_are),
        cmocka_unit_test(grey_has_neither_saturation_nor_hue),
        cmocka_unit_test(adjusts_colours_as_torchvision),
        cmocka_unit_test(crops_pads_and_flips_exactly),
        cmocka_unit_test(crops_randomly_as_torchvision),
        cmocka_unit_test(other_sizes_are_fitted),
        cmocka_unit_test(jitter_is_pure_and_bounded),
        cmocka_unit_test(refuses_bad_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
