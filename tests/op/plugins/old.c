/* A back end made for another version of the interface, for test_backend_plugin. */
#include "backend/backend.h"

extern const fth_backend fth_backend_plugin;
const fth_backend fth_backend_plugin = {.abi = FTH_BACKEND_ABI + 1, .name = "old"};
