# Front ends and the magics that do not touch the ranks.
set(LOCKSTEP_SHELL_FRONT
  edit_line_reader.cpp
  finding_text.cpp
  history_file.cpp
  line_buffer.cpp
  notebook.cpp
  plain_line_reader.cpp
  rank_output.cpp
  renderer.cpp
  screen.cpp
  script.cpp
  suggest.cpp
  text.cpp)
pkg_check_modules(LibEdit REQUIRED IMPORTED_TARGET libedit)
set(LOCKSTEP_SHELL_FRONT_LIBRARIES PkgConfig::LibEdit)
