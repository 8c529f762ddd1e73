/* What every public header begins with. */
#ifndef FARTHING_API_H
#define FARTHING_API_H

/* Marks what libfarthing exports. Everything else in the library is hidden. */
#if defined(__GNUC__)
#define FTH_API __attribute__((visibility("default")))
#else
#define FTH_API
#endif

/* Marks a type whose values a caller must not ignore: a compiler warns where one is. */
#if defined(__clang__)
#define FTH_MUST_USE __attribute__((warn_unused_result))
#elif defined(__GNUC__) && __GNUC__ >= 10
#define FTH_MUST_USE [[nodiscard]]
#else
#define FTH_MUST_USE
#endif

#endif
