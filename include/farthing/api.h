/* What every public header begins with. */
#ifndef FARTHING_API_H
#define FARTHING_API_H

/* Marks what libfarthing exports. Everything else in the library is hidden. */
#if defined(__GNUC__)
#define FTH_API __attribute__((visibility("default")))
#else
#define FTH_API
#endif

#endif
