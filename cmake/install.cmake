# What `make install` puts where. Nothing that is installed holds the prefix: the folder can be moved, and DESTDIR and
# `cmake --install --prefix` work without configuring again. The components are the Debian packages (scripts/make-deb).
include(GNUInstallDirs)
set(library_folder ${CMAKE_INSTALL_LIBDIR})
set(plugin_folder ${CMAKE_INSTALL_LIBDIR}/farthing)
set(doc_folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/farthing)

install(TARGETS farthing RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# Not for people to run: `farthing functions package` takes them from here (src/package/contents.c).
install(TARGETS farthing-function farthing-bootstrap RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/farthing COMPONENT program)

install(TARGETS farthing_shared LIBRARY DESTINATION ${library_folder} COMPONENT library
        NAMELINK_COMPONENT development)
foreach(plugin farthing_reference farthing_cuda farthing_gloo)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION ${plugin_folder} COMPONENT library)
  endif()
endforeach()

install(FILES ${static_library} DESTINATION ${library_folder} COMPONENT development)
install(FILES ${farthing_headers} ${CMAKE_BINARY_DIR}/generated/include/farthing/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/farthing COMPONENT development)

# pkg-config and CMake find the prefix from where their own files are.
list(TRANSFORM library_needs PREPEND "-l" OUTPUT_VARIABLE needs_flags)
list(JOIN needs_flags " " needs_flags)
file(RELATIVE_PATH prefix_from_pkgconfig /${library_folder}/pkgconfig /)
file(RELATIVE_PATH prefix_from_cmake /${library_folder}/cmake/farthing /)
configure_file(cmake/farthing.pc.in generated/farthing.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/farthing.pc DESTINATION ${library_folder}/pkgconfig COMPONENT development)
include(CMakePackageConfigHelpers)
configure_file(cmake/farthing-config.cmake.in generated/farthing-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/farthing-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/farthing-config.cmake
        ${CMAKE_BINARY_DIR}/generated/farthing-config-version.cmake
        DESTINATION ${library_folder}/cmake/farthing COMPONENT development)

# Manual pages and completions (manual.cmake), each where man and the shells look. Debian's zsh looks elsewhere for
# packages' than for the administrator's.
set(FARTHING_ZSH_FOLDER ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions CACHE STRING "where zsh's completion goes")
install(DIRECTORY ${man_folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program FILES_MATCHING PATTERN "*.1")
install(FILES ${completions}/farthing.bash DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions
        RENAME farthing COMPONENT program)
install(FILES ${completions}/_farthing DESTINATION ${FARTHING_ZSH_FOLDER} COMPONENT program)
install(FILES ${completions}/farthing.fish DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d
        COMPONENT program)

install(FILES share/prices.yaml DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/farthing COMPONENT program)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${doc_folder} COMPONENT program)
install(DIRECTORY docs examples deploy DESTINATION ${doc_folder} COMPONENT program
        PATTERN "__pycache__" EXCLUDE PATTERN "build" EXCLUDE PATTERN "runs" EXCLUDE)
