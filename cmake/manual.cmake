# Manual pages and shell completion, made by the program from its tables of commands and options:
#   build/man/farthing*.1
#   build/completions/farthing.bash, _farthing (zsh), farthing.fish
# Targets: man_pages, completions; both are part of the build.
set(man_folder ${CMAKE_BINARY_DIR}/man)
add_custom_command(OUTPUT ${man_folder}/farthing.1 DEPENDS farthing
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${man_folder} # a command that is gone leaves no page
  COMMAND farthing man --folder ${man_folder})
add_custom_target(man_pages ALL DEPENDS ${man_folder}/farthing.1)

set(completions ${CMAKE_BINARY_DIR}/completions)
add_custom_command(OUTPUT ${completions}/farthing.bash ${completions}/_farthing ${completions}/farthing.fish
  DEPENDS farthing
  COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
  COMMAND farthing completion bash > ${completions}/farthing.bash
  COMMAND farthing completion zsh > ${completions}/_farthing
  COMMAND farthing completion fish > ${completions}/farthing.fish)
add_custom_target(completions ALL
  DEPENDS ${completions}/farthing.bash ${completions}/_farthing ${completions}/farthing.fish)
