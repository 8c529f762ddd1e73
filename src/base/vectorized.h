/* Loops that the compiler turns into vector instructions, for whichever the machine has. */
#ifndef FTH_BASE_VECTORIZED_H
#define FTH_BASE_VECTORIZED_H

/* Compiles a function for several instruction sets and picks the best at load time. Loops that OpenMP splits call such
 * functions on their part, as the outlined bodies of parallel regions are not cloned. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define FTH_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define FTH_VECTORIZED
#endif

#endif
