# Installs what the package without compiler has to RUN_ONLY, and runs there what needs no compiler: a file that the
# package in PREFIX has built, the doctor, which says what can't be done and how to get it, and a script, which is refused.
file(REMOVE_RECURSE ${RUN_ONLY})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${RUN_ONLY} --component Unspecified
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(file bin/lockstep-compiler include lib/cmake lib/liblockstep.so lib/lockstep/libtorch.folder
    share/lockstep/setup/debian-packages-cells.txt)
  if(EXISTS ${RUN_ONLY}/${file})
    message(SEND_ERROR "the package without compiler has ${file}")
  endif()
endforeach()
set(ENV{LOCKSTEP_LIBTORCH} ${LIBTORCH})
set(ENV{XDG_CACHE_HOME} ${CACHE})
unset(ENV{LOCKSTEP_BIN})
unset(ENV{LD_LIBRARY_PATH})
execute_process(COMMAND ${PREFIX}/bin/lockstep build ${SESSION} -n 2 -o ${RUN_ONLY}/session.lockstep
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "lockstep build ended with ${result}:\n${output}")
endif()

# The cache with the header of cells is not needed.
set(ENV{XDG_CACHE_HOME} ${RUN_ONLY}/cache)
function(expect code command)
  execute_process(COMMAND ${RUN_ONLY}/bin/lockstep ${command} WORKING_DIRECTORY ${RUN_ONLY}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL code)
    message(SEND_ERROR "lockstep ${command} ended with ${result} rather than ${code}:\n${output}")
  endif()
  foreach(text IN LISTS ARGN)
    string(FIND "${output}" "${text}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "lockstep ${command}: expected '${text}' in:\n${output}")
    endif()
  endforeach()
endfunction()
expect(0 "run;session.lockstep" "sum of ranks is 1, interposer: 1" "LibTorch is ${LIBTORCH}/lib/libtorch_cpu.so")
expect(0 doctor "runs built files" "can't compile cells" "fix: " "lockstep build" "Built files run here.")
expect(0 "doctor;--json" "\"can_start\": true" "\"can_compile\": false")
expect(3 "run;${SESSION}" "this installation runs built files" "lockstep build")
