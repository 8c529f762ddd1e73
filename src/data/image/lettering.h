/* Draws text into images. */
#ifndef FTH_DATA_LETTERING_H
#define FTH_DATA_LETTERING_H

#include "data/data_internal.h"

/* Pixels of a letter at scale 1, with the space to the next letter and line. */
enum { FTH_LETTER_WIDTH = 6, FTH_LETTER_HEIGHT = 10 };
/* Makes any name drawable: at most `lines` lines of `columns` letters, separated by '\n'; if it
 * does not fit it ends with "…". free() it. NULL only without memory. */
char *fth_lettering_wrap(const char *name, int columns, int lines);
void fth_lettering_measure(const char *text, int *columns, int *lines);
/* Draws the result of fth_lettering_wrap(), `scale` times as large, into 8-bit RGB that has room
 * for it. */
void fth_lettering_draw(const char *text, int scale, uint8_t *pixels, size_t stride, int left, int top);

#endif
