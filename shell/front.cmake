# Front ends and the magics that do not touch the ranks.
set(LOCKSTEP_SHELL_FRONT
  check_command.cpp
  command.cpp
  doctor_command.cpp
  doctor_installation.cpp
  doctor_machine.cpp
  edit_line_reader.cpp
  finding_text.cpp
  history_file.cpp
  history_selection.cpp
  line_buffer.cpp
  magic_arguments.cpp
  notebook.cpp
  plain_line_reader.cpp
  rank_output.cpp
  renderer.cpp
  screen.cpp
  script.cpp
  session_records.cpp
  sessions_command.cpp
  suggest.cpp
  table.cpp
  terminal.cpp
  text.cpp
  magics/cd.cpp
  magics/env.cpp
  magics/help.cpp
  magics/history.cpp
  magics/inspect.cpp
  magics/load.cpp
  magics/load_ext.cpp
  magics/quiet.cpp
  magics/reset.cpp
  magics/save.cpp
  magics/who.cpp)
pkg_check_modules(LibEdit REQUIRED IMPORTED_TARGET libedit)
set(LOCKSTEP_SHELL_FRONT_LIBRARIES PkgConfig::LibEdit)
