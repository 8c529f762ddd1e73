# What computing needs, and reading data does not: OpenMP (OPENMP) and oneDNN (DNNL_LIBRARY, DNNL_INCLUDE_FOLDER).
#
# Two OpenMP runtimes at work in a process would each start a thread for every processor. oneDNN, as systems package it, is
# linked with GCC's (libgomp), and so is what GCC compiles. Clang has code for LLVM's alone (libomp), which has all of
# libgomp's functions too. The program names libomp itself and libgomp only through oneDNN, so the dynamic linker finds
# these functions in libomp first, for oneDNN as well: libgomp is loaded and does nothing.
find_package(OpenMP REQUIRED COMPONENTS C)
set(OPENMP OpenMP::OpenMP_C)
if(FARTHING_SANITIZE STREQUAL "thread")
  # ThreadSanitizer cannot see how GCC's OpenMP synchronizes: parallel loops run in the thread that meets them.
  set(OPENMP gomp)
endif()
# Not through oneDNN's own CMake file: Debian's asks for OpenCL's headers, which a CPU back end does not need.
find_path(DNNL_INCLUDE_FOLDER dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
file(STRINGS ${DNNL_INCLUDE_FOLDER}/oneapi/dnnl/dnnl_version.h dnnl_version REGEX "define DNNL_VERSION_M(AJOR|INOR) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" dnnl_version "${dnnl_version}")
if(dnnl_version VERSION_LESS 2.6 OR dnnl_version VERSION_GREATER_EQUAL 4)
  message(FATAL_ERROR "farthing's CPU back end is written for oneDNN 2.6 to 2.7 and 3.x; this is ${dnnl_version}")
endif()
message(STATUS "oneDNN: ${dnnl_version}, ${DNNL_LIBRARY}")
