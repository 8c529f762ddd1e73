/* The back ends of farthing-function: none that needs a large library. */
#include "backend/backend.h"

const fth_builtin_backend fth_builtin_backends[] = {
    {"cpu", &fth_backend_portable},
    {"portable", &fth_backend_portable},
    {NULL, NULL},
};
