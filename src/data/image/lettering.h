/* Text in pictures. */
#ifndef FTH_DATA_LETTERING_H
#define FTH_DATA_LETTERING_H

#include "data/data_internal.h"

/* Pixels that a letter takes at scale 1, the space to the next one and to the next line
 * included. */
enum { FTH_LETTER_WIDTH = 6, FTH_LETTER_HEIGHT = 10 };
/* Any name as text that can be drawn, at most `lines` of at most `columns` letters with '\n'
 * between them; where it does not fit it ends in a letter "…". free() it. NULL only without
 * memory. */
char *fth_lettering_wrap(const char *name, int columns, int lines);
void fth_lettering_measure(const char *text, int *columns, int *lines);
/* Draws what fth_lettering_wrap() made, `scale` times as large, into 8-bit RGB, which has room for
 * it. */
void fth_lettering_draw(const char *text, int scale, uint8_t *pixels, size_t stride, int left, int top);

#endif
