# libfarthing.so and libfarthing.a, made of the objects of the folders' libraries. The program links these folders
# itself: it uses more of them than the library shows, starts without a further library to load, and stays one file that
# can be copied to a machine.
include(cmake/exports.cmake)

set(library_modules base http store spot record cost tensor graph backend exported model export text data batches checkpoint train parameters
    collective cluster parallel api)
set(library_objects "")
foreach(module ${library_modules} ${library_backends})
  list(APPEND library_objects $<TARGET_OBJECTS:fth_${module}>)
endforeach()
# What the library itself needs, by the names that a linker takes; the static library's users need them too.
set(library_needs dnnl gomp jansson yaml crypto archive deflate jpeg spng expat curl microhttpd hiredis utf8proc ssl pthread dl m)

add_library(farthing_shared SHARED ${library_objects})
set_target_properties(farthing_shared PROPERTIES OUTPUT_NAME farthing VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C LINK_DEPENDS ${farthing_version_script})
target_link_libraries(farthing_shared PRIVATE farthing_flags PkgConfig::JANSSON PkgConfig::YAML PkgConfig::CRYPTO
  PkgConfig::EXPAT PkgConfig::CURL PkgConfig::MICROHTTPD PkgConfig::HIREDIS PkgConfig::SSL PkgConfig::ARCHIVE PkgConfig::DEFLATE PkgConfig::JPEG PkgConfig::SPNG PkgConfig::UTF8PROC
  ${DNNL_LIBRARY} ${OPENMP} Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_options(farthing_shared PRIVATE -Wl,--version-script=${farthing_version_script})
if(NOT FARTHING_SANITIZE) # whose symbols come with the program
  target_link_options(farthing_shared PRIVATE -Wl,--no-undefined)
endif()

# One object in which only the same symbols are global, so that a program's own names cannot clash with ours.
set(static_library ${CMAKE_BINARY_DIR}/libfarthing.a)
add_custom_command(OUTPUT ${static_library} COMMAND_EXPAND_LISTS VERBATIM
  DEPENDS ${library_objects} ${farthing_symbol_list}
  COMMAND ${CMAKE_LINKER} -r -o libfarthing.o ${library_objects}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbols=${farthing_symbol_list} libfarthing.o
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
  COMMAND ${CMAKE_AR} crs ${static_library} libfarthing.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libfarthing.o
  COMMENT "Linking C static library libfarthing.a")
add_custom_target(farthing_static ALL DEPENDS ${static_library})
