# The back ends that are part of a program, and the lists of them. A program, or a library, links one list:
#   fth_backends_full      all of them
#   fth_backends_function  what a function needs; brings in no oneDNN
# These are object libraries, so that a program names its list itself: target_link_libraries(program PRIVATE fth_backends_full).
file(GLOB cpu_sources CONFIGURE_DEPENDS src/backend/cpu/*.c)
add_library(fth_backend_cpu STATIC ${cpu_sources})
target_link_libraries(fth_backend_cpu PUBLIC fth_backend ${DNNL_LIBRARY})

file(GLOB portable_sources CONFIGURE_DEPENDS src/backend/portable/*.c src/backend/plain/*.c src/backend/reference/kernel_*.c)
add_library(fth_backend_portable STATIC ${portable_sources})
target_link_libraries(fth_backend_portable PUBLIC fth_backend)

add_library(fth_backends_full OBJECT src/backend/lists/full.c)
target_link_libraries(fth_backends_full PUBLIC fth_backend_cpu fth_backend_portable)
add_library(fth_backends_function OBJECT src/backend/lists/function.c)
target_link_libraries(fth_backends_function PUBLIC fth_backend_portable)
set_target_properties(fth_backend_cpu fth_backend_portable fth_backends_full fth_backends_function PROPERTIES POSITION_INDEPENDENT_CODE ON)
