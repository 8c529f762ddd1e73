/* Decoding: every kind of JPEG and PNG comes out as RGB, a part is what the whole has there, and
 * damaged or hostile files are refused without taking memory. */
#include "test_data_pictures.h"

#include <sys/resource.h>

static int setup(void **state)
{
    return fth_decoder_create((fth_decoder **)state) == FTH_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fth_decoder_free(*state);
    return 0;
}

static int pixel(const fth_picture *picture, int x, int y, int channel)
{
    return picture
        ->pixels[(size_t)(y - picture->top) * picture->stride + (size_t)(x - picture->left) * 3 + (size_t)channel];
}

static void assert_near(int value, int wanted, int tolerance)
{
    if (abs(value - wanted) > tolerance)
        fail_msg("%d is not %d, within %d", value, wanted, tolerance);
}

static void decodes_jpegs_of_every_kind(void **state)
{
    static const int sizes[][2] = {{64, 48}, {1, 1}, {17, 33}, {7, 129}, {640, 2}};
    static const jpeg_kind kinds[] = {
        {JCS_RGB, 100, false, false}, {JCS_RGB, 100, true, false}, {JCS_GRAYSCALE, 100, false, false},
        {JCS_RGB, 100, false, true},  {JCS_RGB, 100, true, true},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++)
        for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++) {
            int width = sizes[i][0], height = sizes[i][1];
            fth_image_header header;
            fth_picture picture;
            encoded jpeg = encode_jpeg(width, height, kinds[k], smooth);
            assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_OK);
            assert_int_equal(header.width, width);
            assert_int_equal(header.height, height);
            bool grey = kinds[k].colours == JCS_GRAYSCALE;
            assert_int_equal(header.grey, grey);
            for (int y = 0; y < height; y += 3)
                for (int x = 0; x < width; x += 3)
                    for (int c = 0; c < 3 && !kinds[k].subsampled; c++)
                        /* quality 100: a rounding in each of the two transforms and the colours */
                        assert_near(pixel(&picture, x, y, c), smooth(x, y, grey ? 0 : c), 6);
            free(jpeg.bytes);
        }
}

static void decodes_inverted_cmyk(void **state)
{
    fth_image_header header;
    fth_picture picture;
    encoded jpeg = encode_jpeg(16, 16, (jpeg_kind){JCS_CMYK, 100, false, false}, smooth);
    assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_OK);
    for (int c = 0; c < 3; c++) /* Pillow: ink and key inverted */
        assert_near(pixel(&picture, 5, 9, c), smooth(5, 9, c) * smooth(5, 9, 3) / 255, 6);
    free(jpeg.bytes);
}

static void a_part_is_as_in_the_whole(void **state)
{
    static const jpeg_kind kinds[] = {{JCS_RGB, 90, false, true},
                                      {JCS_RGB, 90, true, true},
                                      {JCS_RGB, 90, false, false},
                                      {JCS_GRAYSCALE, 90, false, false}};
    static const int parts[][4] = {
        {0, 0, 200, 150}, {40, 30, 50, 60}, {199, 149, 1, 1}, {3, 0, 100, 1}, {0, 77, 1, 73}};
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++)
        for (size_t i = 0; i < FTH_COUNT_OF(parts); i++)
            for (int smooth_chroma = 0; smooth_chroma < 2; smooth_chroma++)
                for (int eighths = 1; eighths <= 8; eighths *= 2) {
                    const int *part = parts[i];
                    encoded jpeg = encode_jpeg(200, 150, kinds[k], wild);
                    fth_decoder *other;
                    fth_picture whole, picture;
                    fth_image_header header;
                    assert_int_equal(fth_decoder_create(&other), FTH_OK);
                    fth_decode_request request = {.eighths = eighths,
                                                  .width = fth_reduced_side(200, eighths),
                                                  .height = fth_reduced_side(150, eighths),
                                                  .smooth_chroma = smooth_chroma};
                    assert_int_equal(fth_decoder_begin(other, jpeg.bytes, jpeg.size_bytes, &header), FTH_OK);
                    assert_int_equal(fth_decoder_finish(other, &request, &whole), FTH_OK);
                    assert_int_equal(whole.width, request.width);
                    request.left = part[0] * eighths / 8;
                    request.top = part[1] * eighths / 8;
                    request.width = (part[2] * eighths + 7) / 8;
                    request.height = (part[3] * eighths + 7) / 8;
                    assert_int_equal(fth_decoder_begin(*state, jpeg.bytes, jpeg.size_bytes, &header), FTH_OK);
                    assert_int_equal(fth_decoder_finish(*state, &request, &picture), FTH_OK);
                    for (int y = request.top; y < request.top + request.height; y++)
                        for (int x = request.left; x < request.left + request.width; x++)
                            for (int c = 0; c < 3; c++)
                                assert_int_equal(pixel(&picture, x, y, c), pixel(&whole, x, y, c));
                    fth_decoder_free(other);
                    free(jpeg.bytes);
                }
}

static void decodes_pngs_of_every_kind(void **state)
{
    enum { W = 5, H = 3 };
    uint8_t pixels[W * H * 8];
    fth_image_header header;
    fth_picture picture;
    encoded png = encode_wild_png(W, H);
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_OK);
    assert_int_equal(header.format == &fth_image_format_png, true);
    assert_int_equal(pixel(&picture, 4, 2, 1), wild(4, 2, 1));
    free(png.bytes);

    for (int i = 0; i < W * H; i++)
        pixels[i] = (uint8_t)(i * 17);
    png = encode_png(W, H, SPNG_COLOR_TYPE_GRAYSCALE, 8, pixels, W * H, NULL);
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_OK);
    assert_true(header.grey);
    for (int c = 0; c < 3; c++)
        assert_int_equal(pixel(&picture, 2, 1, c), 7 * 17);
    free(png.bytes);

    struct spng_plte palette = {.n_entries = 3, .entries = {{10, 20, 30, 0}, {40, 50, 60, 0}, {70, 80, 90, 0}}};
    for (int i = 0; i < W * H; i++)
        pixels[i] = (uint8_t)(i % 3);
    png = encode_png(W, H, SPNG_COLOR_TYPE_INDEXED, 8, pixels, W * H, &palette);
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_OK);
    assert_int_equal(pixel(&picture, 1, 0, 2), 60);
    assert_int_equal(pixel(&picture, 2, 0, 0), 70);
    free(png.bytes);

    for (int i = 0; i < W * H * 4; i++)
        pixels[i] = i % 4 == 3 ? 0 : (uint8_t)(i * 3); /* wholly transparent: the colours stay */
    png = encode_png(W, H, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, pixels, W * H * 4, NULL);
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_OK);
    assert_int_equal(pixel(&picture, 3, 1, 1), (uint8_t)((8 * 4 + 1) * 3));
    free(png.bytes);

    uint16_t deep[W * H * 3];
    for (int i = 0; i < W * H * 3; i++)
        deep[i] = (uint16_t)(i * 1000);
    png = encode_png(W, H, SPNG_COLOR_TYPE_TRUECOLOR, 16, (uint8_t *)deep, sizeof deep, NULL);
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_OK);
    assert_int_equal(pixel(&picture, 4, 2, 2), 44 * 1000 >> 8);
    free(png.bytes);
}

/* The Exif segment of a camera, behind the first marker of a JPEG. */
static encoded add_exif(encoded jpeg, int orientation, bool little)
{
    const uint8_t low = (uint8_t)orientation;
    const uint8_t of_little[] = {0xff, 0xe1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', '*', 0, 8, 0, 0, 0,
                                 1,    0,    0x12, 1,  3,   0,   1,   0,   0, 0, low, 0,   0,   0, 0, 0, 0, 0};
    const uint8_t of_big[] = {0xff, 0xe1, 0, 34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, '*', 0, 0, 0, 8,
                              0,    1,    1, 0x12, 0,   3,   0,   0,   0, 1, 0,   low, 0, 0,   0, 0, 0, 0};
    encoded result = {malloc(jpeg.size_bytes + sizeof of_big), jpeg.size_bytes + sizeof of_big};
    assert_non_null(result.bytes);
    memcpy(result.bytes, jpeg.bytes, 2);
    memcpy(result.bytes + 2, little ? of_little : of_big, sizeof of_big);
    memcpy(result.bytes + 2 + sizeof of_big, jpeg.bytes + 2, jpeg.size_bytes - 2);
    return result;
}

/* Where a pixel of the upright image is stored, after the pictures in the Exif standard. */
static void find_stored(int orientation, int x, int y, int width, int height, int *stored_x, int *stored_y)
{
    const int right = width - 1, bottom = height - 1; /* of the stored image */
    const int places[][2] = {{x, y}, {right - x, y},  {right - x, bottom - y}, {x, bottom - y},
                             {y, x}, {y, bottom - x}, {right - y, bottom - x}, {right - y, x}};
    *stored_x = places[orientation - 1][0];
    *stored_y = places[orientation - 1][1];
}

/* Whole and in parts, at every size: what is stored, turned. */
static void images_come_out_upright(void **state)
{
    enum { W = 72, H = 40 };
    encoded plain = encode_jpeg(W, H, (jpeg_kind){JCS_RGB, 90, false, true}, wild);
    fth_decoder *other;
    assert_int_equal(fth_decoder_create(&other), FTH_OK);
    for (int o = 1; o <= 8; o++)
        for (int eighths = 1; eighths <= 8; eighths *= 2)
            for (int part = 0; part < 2; part++) {
                encoded jpeg = add_exif(plain, o, o % 2);
                const int stored_width = fth_reduced_side(W, eighths), stored_height = fth_reduced_side(H, eighths);
                fth_image_header header;
                fth_picture stored, upright;
                assert_int_equal(fth_decoder_begin(other, plain.bytes, plain.size_bytes, &header), FTH_OK);
                fth_decode_request request = {
                    .eighths = eighths, .width = stored_width, .height = stored_height, .smooth_chroma = true};
                assert_int_equal(fth_decoder_finish(other, &request, &stored), FTH_OK);
                assert_int_equal(fth_decoder_begin(*state, jpeg.bytes, jpeg.size_bytes, &header), FTH_OK);
                assert_int_equal(header.width, o < 5 ? W : H);
                assert_int_equal(header.height, o < 5 ? H : W);
                request.width = fth_reduced_side(header.width, eighths);
                request.height = fth_reduced_side(header.height, eighths);
                if (part) {
                    request.left = request.width / 5;
                    request.top = request.height / 3;
                    request.width = request.width / 3 + 1;
                    request.height = request.height / 4 + 1;
                }
                assert_int_equal(fth_decoder_finish(*state, &request, &upright), FTH_OK);
                for (int y = request.top; y < request.top + request.height; y++)
                    for (int x = request.left; x < request.left + request.width; x++)
                        for (int c = 0; c < 3; c++) {
                            int stored_x, stored_y;
                            find_stored(o, x, y, stored_width, stored_height, &stored_x, &stored_y);
                            assert_int_equal(pixel(&upright, x, y, c), pixel(&stored, stored_x, stored_y, c));
                        }
                free(jpeg.bytes);
            }
    fth_decoder_free(other);
    free(plain.bytes);
}

static void an_orientation_that_makes_no_sense_changes_nothing(void **state)
{
    encoded plain = encode_jpeg(16, 8, (jpeg_kind){JCS_RGB, 90, false, false}, wild);
    fth_image_header header;
    fth_picture picture;
    for (int orientation = 0; orientation < 20; orientation += 9) {
        encoded jpeg = add_exif(plain, orientation, true);
        assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_OK);
        assert_int_equal(header.width, 16);
        jpeg.bytes[12 + 4] = 200; /* a directory behind the end */
        jpeg.bytes[30] = 6;
        assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_OK);
        assert_int_equal(header.width, 16);
        free(jpeg.bytes);
    }
    free(plain.bytes);
}

static void truncated_files_are_refused(void **state)
{
    fth_image_header header;
    fth_picture picture;
    encoded jpeg = encode_jpeg(64, 64, (jpeg_kind){JCS_RGB, 90, false, true}, wild);
    encoded progressive = encode_jpeg(64, 64, (jpeg_kind){JCS_RGB, 90, true, true}, wild),
            png = encode_wild_png(40, 40);
    const encoded files[] = {jpeg, progressive, png};
    for (size_t i = 0; i < FTH_COUNT_OF(files); i++)
        for (size_t size = 0; size < files[i].size_bytes - 2; size += 1 + size / 7) {
            encoded cut = {files[i].bytes, size};
            assert_int_equal(decode_all(*state, cut, &header, &picture), FTH_CORRUPT);
        }
    encoded cut = {jpeg.bytes, jpeg.size_bytes - jpeg.size_bytes / 4};
    assert_int_equal(decode_all(*state, cut, &header, &picture), FTH_CORRUPT);
    assert_message_has("truncated");
    /* Also where only rows that are there are asked for. */
    assert_int_equal(fth_decoder_begin(*state, cut.bytes, cut.size_bytes, &header), FTH_OK);
    fth_decode_request request = {.eighths = 8, .width = 64, .height = 4, .smooth_chroma = true};
    assert_int_equal(fth_decoder_finish(*state, &request, &picture), FTH_CORRUPT);
    /* And the decoder goes on. */
    assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(files); i++)
        free(files[i].bytes);
}

static long peak_kilobytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void claims_of_size_take_no_memory(void **state)
{
    fth_image_header header;
    fth_picture picture;
    long before = peak_kilobytes();
    encoded jpeg = encode_jpeg(64, 64, (jpeg_kind){JCS_RGB, 90, true, true}, wild), png = encode_wild_png(40, 40);
    for (size_t i = 0; i + 8 < jpeg.size_bytes; i++)
        if (jpeg.bytes[i] == 0xff && jpeg.bytes[i + 1] == 0xc2) { /* the frame header: height and width */
            memset(jpeg.bytes + i + 5, 0xff, 4);
            break;
        }
    assert_int_equal(decode_all(*state, jpeg, &header, &picture), FTH_CORRUPT);
    memcpy(png.bytes + 16, "\0\0\xf0\0\0\0\xf0\0", 8); /* its checksum is wrong now, too */
    assert_int_equal(decode_all(*state, png, &header, &picture), FTH_CORRUPT);
    assert_int_equal(decode_all(*state, (encoded){(uint8_t *)"\xff\xd8\xff\xe0", 4}, &header, &picture), FTH_CORRUPT);
    assert_int_equal(decode_all(*state, (encoded){(uint8_t *)"GIF89a....", 10}, &header, &picture), FTH_CORRUPT);
    assert_message_has("neither JPEG nor PNG");
    assert_int_equal(decode_all(*state, (encoded){(uint8_t *)"", 0}, &header, &picture), FTH_CORRUPT);
    assert_true(peak_kilobytes() - before < 32 * 1024);
    free(jpeg.bytes);
    free(png.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decodes_jpegs_of_every_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(decodes_inverted_cmyk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_is_as_in_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(decodes_pngs_of_every_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(images_come_out_upright, setup, teardown),
        cmocka_unit_test_setup_teardown(an_orientation_that_makes_no_sense_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(truncated_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(claims_of_size_take_no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
