# The built-in back ends, and lists of them. A program or library links one list:
#   fth_backends_full      all of them
#   fth_backends_function  those that a function needs, without oneDNN
# They are object libraries, so each program names its list: target_link_libraries(program PRIVATE fth_backends_full).
file(GLOB plain_sources CONFIGURE_DEPENDS src/backend/plain/*.c)
add_library(fth_backend_plain STATIC ${plain_sources})
target_link_libraries(fth_backend_plain PUBLIC fth_backend)

# Kernels based on src/backend/vector/vector.h are compiled once per level of vector instructions; opening a device
# chooses the level (vector/level.h).
add_library(fth_vector STATIC src/backend/vector/level.c src/backend/vector/tiles.c)
target_link_libraries(fth_vector PUBLIC fth_base)
set(vector_levels baseline)
set(vector_baseline_flags "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND vector_levels avx2 avx512)
  set(vector_avx2_flags -mavx2 -mfma)
  set(vector_avx512_flags -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mprefer-vector-width=512)
endif()
include(CheckCCompilerFlag)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  check_c_compiler_flag(-mavx512bf16 FARTHING_COMPILES_AVX512_BF16)
endif()
if(FARTHING_COMPILES_AVX512_BF16)
  set(cpu_levels ${vector_levels} avx512_bf16) # see cpu/level.h
  set(vector_avx512_bf16_flags ${vector_avx512_flags} -mavx512bf16)
  set_property(SOURCE src/backend/cpu/level.c PROPERTY COMPILE_DEFINITIONS FTH_COMPILED_FOR_AVX512_BF16=1)
else()
  set(cpu_levels ${vector_levels})
endif()
set(portable_levels ${vector_levels})
function(add_levels backend) # and its sources
  foreach(level ${${backend}_levels})
    set(target fth_${backend}_${level})
    add_library(${target} OBJECT ${ARGN})
    target_link_libraries(${target} PRIVATE farthing_flags ${OPENMP})
    target_compile_options(${target} PRIVATE -O3 -ffp-contract=fast ${vector_${level}_flags})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_sources(fth_backend_${backend} PRIVATE $<TARGET_OBJECTS:${target}>)
  endforeach()
endfunction()

file(GLOB portable_sources CONFIGURE_DEPENDS src/backend/portable/*.c)
add_library(fth_backend_portable STATIC ${portable_sources})
add_levels(portable src/backend/portable/level/level.c)
target_link_libraries(fth_backend_portable PUBLIC fth_backend_plain fth_vector)

file(GLOB cpu_sources CONFIGURE_DEPENDS src/backend/cpu/*.c)
file(GLOB cpu_level_sources CONFIGURE_DEPENDS src/backend/cpu/level/*.c)
add_library(fth_backend_cpu STATIC ${cpu_sources})
add_levels(cpu ${cpu_level_sources})
# Both sides of a choice may be computed, so that loops with choices vectorize.
set_property(SOURCE src/backend/cpu/level/expression.c APPEND PROPERTY COMPILE_OPTIONS -fno-trapping-math)
target_link_libraries(fth_backend_cpu PUBLIC fth_backend_portable ${DNNL_LIBRARY}) # for loops that both use
target_include_directories(fth_backend_cpu SYSTEM PUBLIC ${DNNL_INCLUDE_FOLDER})

# Kernels based on src/backend/vector/tiles.h, for products in bf16 on AMX, the matrix unit of newer Xeons.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  check_c_compiler_flag("-mamx-tile -mamx-bf16 -mavx512bf16" FARTHING_COMPILES_AMX)
endif()
if(FARTHING_COMPILES_AMX)
  file(GLOB cpu_bf16_sources CONFIGURE_DEPENDS src/backend/cpu/bf16/*.c)
  add_library(fth_cpu_bf16 OBJECT ${cpu_bf16_sources})
  target_link_libraries(fth_cpu_bf16 PRIVATE farthing_flags ${OPENMP})
  target_compile_options(fth_cpu_bf16 PRIVATE -O3 ${vector_avx512_flags} -mavx512bf16 -mamx-tile -mamx-bf16)
  set_target_properties(fth_cpu_bf16 PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_sources(fth_backend_cpu PRIVATE $<TARGET_OBJECTS:fth_cpu_bf16>)
  list(APPEND library_backends cpu_bf16)
  set_property(SOURCE src/backend/cpu/bf16.c PROPERTY COMPILE_DEFINITIONS FTH_COMPILED_FOR_AMX=1)
endif()

add_library(fth_backends_full OBJECT src/backend/lists/full.c)
target_link_libraries(fth_backends_full PUBLIC fth_backend_cpu fth_backend_portable)
add_library(fth_backends_function OBJECT src/backend/lists/function.c)
target_link_libraries(fth_backends_function PUBLIC fth_backend_portable)
set_target_properties(fth_vector fth_backend_plain fth_backend_cpu fth_backend_portable fth_backends_full fth_backends_function PROPERTIES POSITION_INDEPENDENT_CODE ON)
# The parts of libfarthing besides its modules.
foreach(backend portable cpu)
  foreach(level ${${backend}_levels})
    list(APPEND library_backends ${backend}_${level})
  endforeach()
endforeach()
list(APPEND library_backends vector backend_plain backend_cpu backend_portable backends_full)
