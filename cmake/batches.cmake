# libfarthing_batches.so: batches for other programs (src/batches/client/reader.h), which the Python package loads. It is made of the folders that
# reading data needs: no oneDNN and no OpenMP, whose threads do not survive the forks of PyTorch's data workers.
set(batches_objects "")
foreach(module ${batches_modules})
  list(APPEND batches_objects $<TARGET_OBJECTS:fth_${module}>)
endforeach()
add_library(farthing_batches SHARED ${batches_objects})
set(batches_version_script ${CMAKE_BINARY_DIR}/generated/libfarthing_batches.map)
file(CONFIGURE OUTPUT ${batches_version_script} CONTENT "{ global: fth_reader_*; local: *; };\n")
set_target_properties(farthing_batches PROPERTIES LINKER_LANGUAGE C LINK_DEPENDS ${batches_version_script})
target_link_libraries(farthing_batches PRIVATE farthing_flags PkgConfig::JANSSON PkgConfig::YAML PkgConfig::CRYPTO PkgConfig::EXPAT PkgConfig::CURL
  PkgConfig::MICROHTTPD PkgConfig::HIREDIS PkgConfig::SSL PkgConfig::ARCHIVE PkgConfig::DEFLATE PkgConfig::JPEG PkgConfig::SPNG PkgConfig::UTF8PROC
  Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_options(farthing_batches PRIVATE -Wl,--version-script=${batches_version_script} -Wl,--gc-sections)
if(NOT FARTHING_SANITIZE) # whose symbols come with the program
  target_link_options(farthing_batches PRIVATE -Wl,--no-undefined)
endif()
