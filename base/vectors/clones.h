// For loops that must vectorise: each function compiled for AVX-512, AVX2 and the baseline.
#pragma once

// The sanitizers' instrumentation runs before the loader has resolved multiversioned functions.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define ORRERY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ORRERY_CLONES
#endif
#define ORRERY_INLINE __attribute__((always_inline)) inline
