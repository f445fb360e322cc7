# Runs sessions of the package in PREFIX with the LibTorch of the cache. A cell prints which LibTorch the worker loads.
set(libtorch ${CACHE}/lockstep/libtorch/${VERSION}/torch)
set(ENV{XDG_CACHE_HOME} ${CACHE})
unset(ENV{LOCKSTEP_LIBTORCH})
unset(ENV{LD_LIBRARY_PATH})

function(expect_text output text)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "expected '${text}' in:\n${output}")
  endif()
endfunction()

# Cells see the user's LD_LIBRARY_PATH, not the one by which the worker finds LibTorch.
foreach(path unset /nowhere)
  if(NOT path STREQUAL unset)
    set(ENV{LD_LIBRARY_PATH} ${path})
  endif()
  execute_process(COMMAND ${PREFIX}/bin/lockstep run ${SESSION} -n 2
    OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "the session ended with ${result}:\n${output}${errors}")
  endif()
  expect_text("${output}" "sum of ranks is 1, interposer: 1")
  expect_text("${output}" "LibTorch is ${libtorch}/lib/libtorch_cpu.so")
  expect_text("${output}" "LD_LIBRARY_PATH is ${path}")
endforeach()

execute_process(COMMAND ${PREFIX}/bin/lockstep doctor OUTPUT_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(SEND_ERROR "lockstep doctor ended with ${result}:\n${output}")
endif()
expect_text("${output}" "in ${libtorch} ")

# Without LibTorch, the session and the doctor name the program that gets it.
set(ENV{XDG_CACHE_HOME} ${CACHE}/empty)
foreach(command "run;${SESSION}" doctor)
  execute_process(COMMAND ${PREFIX}/bin/lockstep ${command} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 3)
    message(SEND_ERROR "without LibTorch, lockstep ${command} ended with ${result}:\n${output}")
  endif()
  expect_text("${output}" "run ${PREFIX}/bin/lockstep-setup")
endforeach()
