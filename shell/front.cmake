# Front ends and the magics that do not touch the ranks.
set(LOCKSTEP_SHELL_FRONT
  finding_text.cpp
  line_buffer.cpp
  notebook.cpp
  rank_output.cpp
  renderer.cpp
  screen.cpp
  script.cpp
  suggest.cpp
  text.cpp)
set(LOCKSTEP_SHELL_FRONT_LIBRARIES)
