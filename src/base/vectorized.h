/* Loops that the compiler vectorizes, for several instruction sets. */
#ifndef FTH_BASE_VECTORIZED_H
#define FTH_BASE_VECTORIZED_H

/* FTH_VECTORIZED compiles a function for several instruction sets and picks the best at load time.
 * Loops that OpenMP splits call such functions on their part, as the outlined bodies of parallel
 * regions are not cloned. FTH_VECTORIZED_EXACT does the same and fuses no multiplication with an
 * addition: the numbers are the same on every machine. The choice is made before a sanitizer's
 * runtime is set up, so sanitized builds have one version. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define FTH_CLONED           target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")
#define FTH_VECTORIZED       __attribute__((FTH_CLONED, optimize("O3")))
#define FTH_VECTORIZED_EXACT __attribute__((FTH_CLONED, optimize("O3", "fp-contract=off")))
#elif !defined(__clang__) /* arm64 fuses unless told not to */
#define FTH_VECTORIZED
#define FTH_VECTORIZED_EXACT __attribute__((optimize("fp-contract=off")))
#else /* clang: whole files, by a flag in CMakeLists.txt */
#define FTH_VECTORIZED
#define FTH_VECTORIZED_EXACT
#endif

/* Before a loop: no iteration reads what another one writes, though pointers may be equal. */
#ifdef __clang__
#define FTH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FTH_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
