# farthing-function, the small program for functions, and farthing-bootstrap, which starts it in a package (src/package).
#
# It links the same folders' libraries as farthing, with the list of back ends that has no oneDNN. What it needs of others is
# linked statically where there is an archive, so that libarchive does not bring libxml2 and ICU (33 MB). libcurl stays
# shared, since Debian's needs libraries that have no archive (Kerberos, LDAP), and so does what libcurl brings anyway.
include(CheckCSourceCompiles)
set(libcurl_brings libcurl libssl libcrypto)

# All that `target` links, directly or not: our own libraries in ${modules}, other things in ${others}.
function(farthing_collect target modules others)
  foreach(item IN LISTS ${modules})
    if(item STREQUAL target)
      return()
    endif()
  endforeach()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    list(APPEND ${modules} ${target})
  endif()
  get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  foreach(item IN LISTS links)
    if(item MATCHES "^fth_" AND TARGET ${item})
      farthing_collect(${item} ${modules} ${others})
    elseif(item)
      list(APPEND ${others} ${item})
    endif()
  endforeach()
  set(${modules} ${${modules}} PARENT_SCOPE)
  set(${others} ${${others}} PARENT_SCOPE)
endfunction()

# What the archives need in turn; the shared ones are in libcurl's train.
find_library(function_zlib z)
find_library(function_zstd NAMES zstd libzstd.so.1)
find_library(function_lzma NAMES liblzma.a lzma liblzma.so.5)
find_library(function_bzip2 NAMES libbz2.a bz2 libbz2.so.1.0)
find_library(function_nettle NAMES nettle libnettle.so.8)
find_library(function_gnutls NAMES gnutls libgnutls.so.30)
set(archives_need "")
foreach(library lzma bzip2 zlib zstd nettle gnutls)
  if(function_${library})
    list(APPEND archives_need ${function_${library}})
  endif()
endforeach()

# Sets ${result} if a program that calls these functions can be linked with the archive.
function(farthing_check_archive result archive)
  set(CMAKE_REQUIRED_LIBRARIES -Wl,--as-needed -Wl,--gc-sections ${archive} ${archives_need} Threads::Threads)
  set(declarations "")
  set(calls "")
  foreach(function ${ARGN})
    string(APPEND declarations "void ${function}(void);\n")
    string(APPEND calls "${function}();\n")
  endforeach()
  check_c_source_compiles("${declarations}int main(void)\n{\n${calls}return 0;\n}" ${result})
endfunction()

# The archive of a library if it will do, else the library itself.
function(farthing_find_archive library result)
  string(REGEX REPLACE "\\.so$" ".a" archive ${library})
  get_filename_component(name ${library} NAME_WE)
  set(${result} ${library} PARENT_SCOPE)
  if(NOT library MATCHES "/lib[^/]*\\.so$" OR NOT EXISTS ${archive} OR name IN_LIST libcurl_brings)
    return()
  endif()
  set(calls_of_libarchive archive_read_support_format_tar archive_read_support_format_zip archive_read_support_format_raw
      archive_read_support_filter_gzip archive_read_support_filter_xz archive_read_support_filter_zstd
      archive_read_support_filter_bzip2 archive_write_set_format_pax_restricted archive_read_open1 archive_write_open)
  set(calls_of_libmicrohttpd MHD_start_daemon MHD_queue_response MHD_get_connection_info)
  if(calls_of_${name}) # which needs others in turn
    farthing_check_archive(FARTHING_STATIC_${name} ${archive} ${calls_of_${name}})
    if(NOT FARTHING_STATIC_${name})
      return()
    endif()
  endif()
  set(${result} ${archive} PARENT_SCOPE)
endfunction()

set(function_modules "")
set(function_others "")
farthing_collect(fth_functions function_modules function_others)
farthing_collect(fth_backends_function function_modules function_others)

set(function_archives "") # which refer to each other, and so are searched in turn
set(function_shared "")
foreach(module ${function_modules})
  get_target_property(type ${module} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND function_archives $<TARGET_FILE:${module}>)
  endif()
endforeach()
list(REMOVE_DUPLICATES function_others)
foreach(item ${function_others})
  if(item MATCHES "^PkgConfig::")
    get_target_property(libraries ${item} INTERFACE_LINK_LIBRARIES)
    foreach(library ${libraries})
      farthing_find_archive(${library} found)
      if(found MATCHES "\\.a$")
        list(APPEND function_archives ${found})
      else()
        list(APPEND function_shared ${found})
      endif()
    endforeach()
  elseif(NOT item STREQUAL "farthing_flags")
    list(APPEND function_shared ${item})
  endif()
endforeach()

add_executable(farthing-function src/function_program/main.c src/function_program/startup_pages.c src/cli/signals.c
   $<TARGET_OBJECTS:fth_backends_function>)
add_dependencies(farthing-function ${function_modules})
set_property(TARGET farthing-function PROPERTY LINK_DEPENDS ${function_archives})
target_link_libraries(farthing-function PRIVATE farthing_flags -Wl,--as-needed -Wl,--start-group ${function_archives}
  -Wl,--end-group ${function_shared} ${archives_need})
target_link_options(farthing-function PRIVATE -Wl,--gc-sections)
if(CMAKE_BUILD_TYPE STREQUAL "Release") # it is packaged as it is
  target_link_options(farthing-function PRIVATE -Wl,-s)
endif()

# Statically linked, and with neither sanitizers nor the rest of farthing_flags.
add_executable(farthing-bootstrap src/function_program/bootstrap.c)
target_compile_definitions(farthing-bootstrap PRIVATE _GNU_SOURCE)
target_compile_options(farthing-bootstrap PRIVATE -Wall -Wextra -Wshadow -Wstrict-prototypes -fno-pie)
target_link_options(farthing-bootstrap PRIVATE -static -Wl,--gc-sections -Wl,-s)
add_dependencies(farthing farthing-function farthing-bootstrap)
