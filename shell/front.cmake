# Front ends and the magics that do not touch the ranks.
set(LOCKSTEP_SHELL_FRONT
  suggest.cpp)
set(LOCKSTEP_SHELL_FRONT_LIBRARIES)
