# A toolchain file: builds for arm64 on another machine, against the libraries of a Debian system for arm64 in
# FARTHING_SYSROOT, and runs what is built in QEMU. scripts/build-arm64 makes that folder and passes this file.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(FARTHING_SYSROOT "" CACHE PATH "Debian's libraries and headers for arm64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FARTHING_SYSROOT)
set(CMAKE_SYSROOT ${FARTHING_SYSROOT})

set(arm64_triple aarch64-linux-gnu)
if(NOT CMAKE_C_COMPILER)
  set(CMAKE_C_COMPILER ${arm64_triple}-gcc)
  set(CMAKE_CXX_COMPILER ${arm64_triple}-g++)
endif()
set(CMAKE_C_COMPILER_TARGET ${arm64_triple}) # for clang; GCC's is in its name
set(CMAKE_CXX_COMPILER_TARGET ${arm64_triple})
set(CMAKE_LIBRARY_ARCHITECTURE ${arm64_triple})

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${FARTHING_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${FARTHING_SYSROOT}/usr/lib/${arm64_triple}/pkgconfig:${FARTHING_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${FARTHING_SYSROOT})
