# What libfarthing shows of itself: the functions that include/farthing declares with FTH_API, and what plugins need
# (src/backend/plugin_symbols.txt), as a version script for the shared library and a list for the static one.
file(GLOB farthing_headers CONFIGURE_DEPENDS include/farthing/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${farthing_headers} src/backend/plugin_symbols.txt)

set(public_symbols "")
foreach(header ${farthing_headers})
  file(READ ${header} text)
  string(REPLACE ";" "@" text "${text}") # not a list
  string(REGEX MATCHALL "FTH_API [^@]*@" declarations "${text}")
  foreach(declaration ${declarations})
    string(REGEX MATCH "(fth_[a-z0-9_]+)\\(" found "${declaration}")
    list(APPEND public_symbols ${CMAKE_MATCH_1})
  endforeach()
endforeach()
file(STRINGS src/backend/plugin_symbols.txt plugin_symbols REGEX "^fth_")

set(farthing_version_script ${CMAKE_BINARY_DIR}/generated/libfarthing.map)
list(JOIN public_symbols "; " public_text)
list(JOIN plugin_symbols "; " plugin_text)
file(CONFIGURE OUTPUT ${farthing_version_script}
  CONTENT "FARTHING_${PROJECT_VERSION_MAJOR} { global: ${public_text}; local: *; };\nFARTHING_PRIVATE { global: ${plugin_text}; };\n")
set(farthing_symbol_list ${CMAKE_BINARY_DIR}/generated/libfarthing.symbols)
list(JOIN public_symbols "\n" public_text)
list(JOIN plugin_symbols "\n" plugin_text)
file(CONFIGURE OUTPUT ${farthing_symbol_list} CONTENT "${public_text}\n${plugin_text}\n")
