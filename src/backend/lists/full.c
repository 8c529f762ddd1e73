/* The back ends of the program farthing and of libfarthing. */
#include "backend/backend.h"

const fth_builtin_backend fth_builtin_backends[] = {
    {"cpu", &fth_backend_cpu},
    {"portable", &fth_backend_portable},
    {NULL, NULL},
};
