/* Releases memory that only starting the program needed. */
#ifndef FTH_FUNCTION_PROGRAM_STARTUP_PAGES_H
#define FTH_FUNCTION_PROGRAM_STARTUP_PAGES_H

/* To link some forty libraries the loader reads tables that are not needed again. The kernel drops
 * these pages and maps again those that are used. Saves 3.7 MB of the peak of a function that
 * trains mnist-cnn. */
void fth_startup_pages_release(void);

#endif
