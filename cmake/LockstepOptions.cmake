# Compile options that every target of the tree shares, and its precompiled headers.
#
#   lockstep_target(NAME)        warnings, sanitizers, the include root
#   lockstep_plain_target(NAME)  the same, and the shared precompiled header of the standard library and JSON
#   lockstep_torch_target(NAME)  the same, and LibTorch with its shared precompiled header

option(LOCKSTEP_UNITY "Compile sources in batches (lockstep_batches)" ON)
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, comma separated; empty for none")

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these allowances ccache refuses every file that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LOCKSTEP_CCACHE})
endif()

set(LOCKSTEP_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(LOCKSTEP_WERROR)
  list(APPEND LOCKSTEP_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # std::stable_sort of libstdc++ 12 uses a deprecated function of its own, and hushes GCC only.
  list(APPEND LOCKSTEP_WARNINGS -Wno-deprecated-declarations)
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps and overflows in std::string's operator+ that are not there (its bug 105651), and a null pointer
  # in LLVM's headers.
  list(APPEND LOCKSTEP_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-nonnull)
endif()

function(lockstep_target name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${LOCKSTEP_WARNINGS})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TARGETS ${name})
  if(LOCKSTEP_SANITIZE)
    # vptr: in LibTorch's headers c10::IValue has pointers to intrusive_ptr_target that the check takes for wild ones.
    target_compile_options(${name} PRIVATE
      -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${name} PRIVATE -fsanitize=${LOCKSTEP_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
      target_compile_options(${name} PRIVATE -fsanitize-ignorelist=${CMAKE_SOURCE_DIR}/tests/sanitizers/ignored.txt)
    endif()
    get_target_property(type ${name} TYPE)
    if(type STREQUAL EXECUTABLE)
      if(NOT TARGET lockstep_sanitizer_options)
        add_library(lockstep_sanitizer_options OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitizers/options.cpp)
      endif()
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:lockstep_sanitizer_options>)
    endif()
  endif()
endfunction()

# lockstep_share_header(NAME HEADER CARRIER): NAME is compiled with the precompiled HEADER, which is built once, by the
# target CARRIER. It serves the very same options only, -fPIC among them, so programs are compiled as
# position-independent code, too. Folders with another level of optimization have carriers of their own, whose names end
# in LOCKSTEP_CARRIER_SUFFIX.
#
# Clang instantiates the templates that the header names once, in the header, and not again in each source: a source that
# includes LibTorch takes a quarter to a third less processor time.
set(LOCKSTEP_PCH_OPTIONS -fpch-preprocess -Winvalid-pch)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  list(APPEND LOCKSTEP_PCH_OPTIONS -fpch-instantiate-templates)
endif()

function(lockstep_share_header name header carrier)
  string(APPEND carrier "${LOCKSTEP_CARRIER_SUFFIX}")
  if(NOT TARGET ${carrier})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/${carrier}.cpp CONTENT "// Carries a shared precompiled header.\n")
    add_library(${carrier} OBJECT ${CMAKE_BINARY_DIR}/generated/${carrier}.cpp)
    lockstep_target(${carrier})
    target_compile_options(${carrier} PRIVATE -fPIC ${LOCKSTEP_PCH_OPTIONS})
    target_link_libraries(${carrier} PRIVATE ${ARGN})
    target_precompile_headers(${carrier} PRIVATE ${CMAKE_SOURCE_DIR}/${header})
  endif()
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC ${LOCKSTEP_PCH_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} REUSE_FROM ${carrier})
endfunction()

function(lockstep_plain_target name)
  lockstep_target(${name})
  lockstep_share_header(${name} protocol/plain_pch.h lockstep_plain_pch nlohmann_json::nlohmann_json)
endfunction()

# A torch source costs 20 s without a precompiled header; with one it is 5 s by Clang and 17 s by GCC, which is why the
# presets choose Clang.
#
# LibTorch's libraries are compiled with NDEBUG, and classes of its headers have other members without it
# (at::RecordFunction, c10::impl::OperatorEntry): code without NDEBUG reads and destroys what is not there.
add_library(lockstep_libtorch_layout INTERFACE)
target_compile_definitions(lockstep_libtorch_layout INTERFACE $<$<NOT:$<CONFIG:Release>>:NDEBUG>)

function(lockstep_torch_target name)
  lockstep_target(${name})
  lockstep_share_header(${name} collectives/torch_pch.h lockstep_torch_pch LibTorch::torch lockstep_libtorch_layout)
endfunction()

# lockstep_gpu_bundle(NAME FOLDER): the program NAME travels to machines with GPUs, in FOLDER of what tools/gpu-bundle
# packs: cpu_tests and device_tests have GoogleTest programs, each of which its script runs; benchmarks has those that
# the script names (tools/gpu_bundle/run.py).
function(lockstep_gpu_bundle name folder)
  install(TARGETS ${name} RUNTIME DESTINATION ${folder} COMPONENT GpuBundle EXCLUDE_FROM_ALL)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_GPU_BUNDLE ${name})
endfunction()

# lockstep_batches(): compiles the sources of every target in batches. Most of what a source costs is the work on the
# templates of its headers, which a batch pays for once: 25 sources of inspectors/ in one batch take 0.6 of the processor
# time that they take in four. A batch has whole folders, in the order of their paths, as long as they are LOCKSTEP_BATCH
# sources at most, and has the name of the first; a larger folder has batches of its own. A source that two targets of a
# directory share is in a batch of the same name in both. The top of the tree calls it when all targets have their sources.
set(LOCKSTEP_BATCH 24 CACHE STRING "Sources of a batch; with fewer, an edit of one source is compiled sooner")
mark_as_advanced(LOCKSTEP_BATCH)
function(lockstep_batches)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  get_property(targets GLOBAL PROPERTY LOCKSTEP_TARGETS)
  foreach(name IN LISTS targets)
    get_target_property(directory ${name} SOURCE_DIR)
    get_target_property(sources ${name} SOURCES)
    set(paths)
    foreach(source IN LISTS sources)
      if(source MATCHES "\\.cpp$")
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${directory} NORMALIZE)
        list(APPEND paths ${source})
      endif()
    endforeach()
    list(SORT paths)
    set(folders)
    foreach(path IN LISTS paths)
      cmake_path(GET path PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      string(MAKE_C_IDENTIFIER "${folder}" folder)
      list(APPEND folders ${folder})
      list(APPEND in_${folder} ${path})
    endforeach()
    list(REMOVE_DUPLICATES folders)
    set(group)
    set(room 0)
    foreach(folder IN LISTS folders)
      list(LENGTH in_${folder} count)
      if(count GREATER room)
        set(group ${folder})
        set(room ${LOCKSTEP_BATCH})
      endif()
      math(EXPR batches "(${count} + ${LOCKSTEP_BATCH} - 1) / ${LOCKSTEP_BATCH}")
      set(index 0)
      foreach(path IN LISTS in_${folder})
        math(EXPR batch "${index} * ${batches} / ${count}")
        math(EXPR index "${index} + 1")
        set_property(SOURCE ${path} TARGET_DIRECTORY ${name} PROPERTY UNITY_GROUP ${group}_${batch})
      endforeach()
      math(EXPR room "${room} - ${count}")
      unset(in_${folder})
    endforeach()
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endforeach()
endfunction()
