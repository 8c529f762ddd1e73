# The back ends that are part of a program, and the lists of them. A program, or a library, links one list:
#   fth_backends_full      all of them
#   fth_backends_function  what a function needs; brings in no oneDNN
# These are object libraries, so that a program names its list itself: target_link_libraries(program PRIVATE fth_backends_full).
file(GLOB plain_sources CONFIGURE_DEPENDS src/backend/plain/*.c)
add_library(fth_backend_plain STATIC ${plain_sources})
target_link_libraries(fth_backend_plain PUBLIC fth_backend)

file(GLOB cpu_sources CONFIGURE_DEPENDS src/backend/cpu/*.c)
add_library(fth_backend_cpu STATIC ${cpu_sources})
target_link_libraries(fth_backend_cpu PUBLIC fth_backend_portable ${DNNL_LIBRARY}) # loops that both have

# Its loops are compiled once for each level of vector instructions, and chosen when it is opened.
file(GLOB portable_sources CONFIGURE_DEPENDS src/backend/portable/*.c)
set(portable_levels baseline)
set(portable_baseline_flags "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND portable_levels avx2 avx512)
  set(portable_avx2_flags -mavx2 -mfma)
  set(portable_avx512_flags -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mprefer-vector-width=512)
endif()
add_library(fth_backend_portable STATIC ${portable_sources})
foreach(level ${portable_levels})
  add_library(fth_portable_${level} OBJECT src/backend/portable/level/level.c)
  target_link_libraries(fth_portable_${level} PRIVATE farthing_flags)
  target_compile_options(fth_portable_${level} PRIVATE -O3 -ffp-contract=fast ${portable_${level}_flags})
  set_target_properties(fth_portable_${level} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_sources(fth_backend_portable PRIVATE $<TARGET_OBJECTS:fth_portable_${level}>)
endforeach()
list(LENGTH portable_levels count)
if(count GREATER 1)
  target_compile_definitions(fth_backend_portable PRIVATE PORTABLE_X86_LEVELS)
endif()
target_link_libraries(fth_backend_portable PUBLIC fth_backend_plain)

add_library(fth_backends_full OBJECT src/backend/lists/full.c)
target_link_libraries(fth_backends_full PUBLIC fth_backend_cpu fth_backend_portable)
add_library(fth_backends_function OBJECT src/backend/lists/function.c)
target_link_libraries(fth_backends_function PUBLIC fth_backend_portable)
set_target_properties(fth_backend_plain fth_backend_cpu fth_backend_portable fth_backends_full fth_backends_function PROPERTIES POSITION_INDEPENDENT_CODE ON)
# What libfarthing is made of, besides its modules.
list(TRANSFORM portable_levels PREPEND portable_ OUTPUT_VARIABLE library_backends)
list(APPEND library_backends backend_plain backend_cpu backend_portable backends_full)
