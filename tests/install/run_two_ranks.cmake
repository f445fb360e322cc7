# Runs PROGRAM as ranks 0 and 1 at the same time; they meet through a file. Each writes the sum, and whether the interposer is active.
file(MAKE_DIRECTORY ${SCRATCH})
file(REMOVE ${SCRATCH}/meet)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env RANK=0 WORLD_SIZE=2 ${PROGRAM} ${SCRATCH}/meet ${SCRATCH}/rank-0.txt
  COMMAND ${CMAKE_COMMAND} -E env RANK=1 WORLD_SIZE=2 ${PROGRAM} ${SCRATCH}/meet ${SCRATCH}/rank-1.txt
  RESULTS_VARIABLE results ERROR_VARIABLE errors)
if(NOT results STREQUAL "0;0")
  message(FATAL_ERROR "the ranks ended with ${results}:\n${errors}")
endif()
foreach(rank 0 1)
  file(READ ${SCRATCH}/rank-${rank}.txt said)
  if(NOT said STREQUAL "rank ${rank} of 2: sum 3, interposer: ${INTERPOSER}\n")
    message(FATAL_ERROR "rank ${rank} said: ${said}")
  endif()
endforeach()
