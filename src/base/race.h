/* Intentional data races, by name, so that ThreadSanitizer (`make tsan`) reports only others.
 *
 *     FTH_RACE_BEGIN(hogwild_weights);
 *     ... reads and writes what other threads write without a lock ...
 *     FTH_RACE_END(hogwild_weights);
 *
 * The calling thread's plain memory accesses in between are not checked; locks and atomics still
 * are. The enumeration below lists the names, each with the reason why the race is harmless. */
#ifndef FTH_BASE_RACE_H
#define FTH_BASE_RACE_H

typedef enum fth_race {
    FTH_RACE_hogwild_weights /* workers update one model without locks: the algorithm (Niu et al., 2011) */
} fth_race;

#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line); /* of ThreadSanitizer's runtime */
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define FTH_RACE_BEGIN(name)                                                                                           \
    ((void)FTH_RACE_##name, AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define FTH_RACE_END(name)                                                                                             \
    ((void)FTH_RACE_##name, AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__))
#else
#define FTH_RACE_BEGIN(name) ((void)FTH_RACE_##name)
#define FTH_RACE_END(name)   ((void)FTH_RACE_##name)
#endif

#endif
