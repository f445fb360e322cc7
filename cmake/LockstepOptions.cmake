# Compile options that every target of the tree shares, and the one precompiled header of LibTorch.
#
#   lockstep_target(NAME)        warnings, sanitizers, the include root
#   lockstep_torch_target(NAME)  the same, and LibTorch with the shared precompiled header

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, comma separated; empty for none")

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these allowances ccache refuses every file that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LOCKSTEP_CCACHE})
endif()

set(LOCKSTEP_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps and overflows in std::string's operator+ that are not there (its bug 105651).
  list(APPEND LOCKSTEP_WARNINGS -Wno-restrict -Wno-stringop-overflow)
endif()
if(LOCKSTEP_WERROR)
  list(APPEND LOCKSTEP_WARNINGS -Werror -Wno-error=array-bounds)  # the same bug of GCC 12
endif()

function(lockstep_target name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${LOCKSTEP_WARNINGS})
  if(LOCKSTEP_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${name} PRIVATE -fsanitize=${LOCKSTEP_SANITIZE})
  endif()
endfunction()

# A torch source costs 20 s without a precompiled header. GCC takes one only for the very same options, -fPIC among them,
# so programs are compiled as position-independent code, too.
function(lockstep_torch_target name)
  lockstep_target(${name})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC -fpch-preprocess -Winvalid-pch)
  target_link_libraries(${name} PRIVATE LibTorch::torch)
  if(NOT TARGET lockstep_torch_pch)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/torch_pch.cpp CONTENT "// Carries the shared precompiled header.\n")
    add_library(lockstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/generated/torch_pch.cpp)
    lockstep_target(lockstep_torch_pch)
    target_compile_options(lockstep_torch_pch PRIVATE -fPIC -fpch-preprocess -Winvalid-pch)
    target_link_libraries(lockstep_torch_pch PRIVATE LibTorch::torch)
    target_precompile_headers(lockstep_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/dist/torch_pch.h)
  endif()
  target_precompile_headers(${name} REUSE_FROM lockstep_torch_pch)
endfunction()
