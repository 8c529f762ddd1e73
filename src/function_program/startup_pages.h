/* Gives back the memory that only starting the program needed. */
#ifndef FTH_FUNCTION_PROGRAM_STARTUP_PAGES_H
#define FTH_FUNCTION_PROGRAM_STARTUP_PAGES_H

/* To link some forty libraries the loader reads tables all over them, which nobody needs again: the
 * kernel drops those pages from the process, and maps again what is used. 3.7 MB of the peak of a
 * function that trains mnist-cnn. */
void fth_startup_pages_release(void);

#endif
