# Disables the tests that not_run.txt names: ctest counts them as "Not Run (Disabled)".
set(file ${CMAKE_CURRENT_LIST_DIR}/not_run.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
if(LOCKSTEP_SANITIZE MATCHES "thread")
  set(preset tsan)
else()
  set(preset asan)
endif()
set(names "^$")
file(STRINGS ${file} lines REGEX "^[^#]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([a-z,]+) +([^ ]+) +[^ ]")
    message(FATAL_ERROR "${file}: a line names presets, tests and a reason; this one does not: ${line}")
  endif()
  set(name ${CMAKE_MATCH_2})  # the next comparison changes CMAKE_MATCH_2
  if(CMAKE_MATCH_1 MATCHES "${preset}")
    string(APPEND names "|^${name}")
  endif()
endforeach()

# A property of a test can be set in its own folder only, so ctest itself looks at the names. It reads this file before
# those that list the tests, each by a call of add_test. The arguments are passed on one by one, because one of them can
# have a semicolon.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/not_run.cmake @ONLY CONTENT [[
function(add_test name)
  set(arguments)
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE ${last})
    string(APPEND arguments " [====[${ARGV${i}}]====]")
  endforeach()
  cmake_language(EVAL CODE "_add_test(${arguments})")
  if(name MATCHES [====[@names@]====])
    set_tests_properties("${name}" PROPERTIES DISABLED TRUE)
  endif()
endfunction()
]])
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/not_run.cmake)
