# LibTorch as the wheel of torch has it: libtorch_cpu and libc10 only, so that nothing here needs CUDA.
# (The wheel's own TorchConfig.cmake wants a CUDA toolkit, and its libtorch.so pulls in every NVIDIA library.)
#
# Where it looks, first hit wins: LOCKSTEP_LIBTORCH (variable or environment: the folder with include/ and lib/),
# CMAKE_PREFIX_PATH, an active Python that has torch, the cache that tools/setup and lockstep-setup fill (the version in
# LibTorch_DEFAULT_VERSION). docs/install.md has the order, which is the same everywhere.
# Gives: LibTorch_VERSION, LibTorch_ROOT, target LibTorch::torch. Supported: 2.11 to 2.15.

set(_libtorch_header include/torch/headeronly/version.h)
if(NOT LibTorch_DEFAULT_VERSION)
  set(LibTorch_DEFAULT_VERSION 2.11.0)
endif()
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/LockstepConfig.cmake)
  set(_libtorch_setup lockstep-setup)
else()
  set(_libtorch_setup tools/setup)
endif()
set(_libtorch_hints ${LOCKSTEP_LIBTORCH} $ENV{LOCKSTEP_LIBTORCH})
list(POP_FRONT _libtorch_hints _libtorch_named)
if(_libtorch_named)
  get_filename_component(_libtorch_named "${_libtorch_named}" REALPATH BASE_DIR ${CMAKE_BINARY_DIR})
  if(NOT LibTorch_ROOT STREQUAL _libtorch_named)
    # Another one is named than the last time: what was found in the old one is void.
    unset(LibTorch_ROOT CACHE)
    unset(LibTorch_CPU_LIBRARY CACHE)
    unset(LibTorch_C10_LIBRARY CACHE)
  endif()
  find_path(LibTorch_ROOT NAMES ${_libtorch_header} HINTS ${_libtorch_named} NO_DEFAULT_PATH)
else()
  set(_libtorch_hints)
  foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND _libtorch_hints ${_prefix} ${_prefix}/torch)
  endforeach()
  find_path(LibTorch_ROOT NAMES ${_libtorch_header} HINTS ${_libtorch_hints} NO_DEFAULT_PATH)
  if(NOT LibTorch_ROOT)
    find_program(_libtorch_python NAMES python3 python)
    if(_libtorch_python)
      execute_process(
        COMMAND ${_libtorch_python} -c "import importlib.util,os;s=importlib.util.find_spec('torch');print(os.path.dirname(s.origin) if s else '')"
        OUTPUT_VARIABLE _libtorch_from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    set(_libtorch_cache $ENV{XDG_CACHE_HOME})
    if(NOT _libtorch_cache)
      set(_libtorch_cache $ENV{HOME}/.cache)
    endif()
    find_path(LibTorch_ROOT NAMES ${_libtorch_header} NO_DEFAULT_PATH
      HINTS ${_libtorch_from_python} ${_libtorch_cache}/lockstep/libtorch/${LibTorch_DEFAULT_VERSION}-gpu/torch
            ${_libtorch_cache}/lockstep/libtorch/${LibTorch_DEFAULT_VERSION}/torch)
  endif()
endif()

if(LibTorch_ROOT)
  file(STRINGS ${LibTorch_ROOT}/${_libtorch_header} _libtorch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _libtorch_version "${_libtorch_version}")
  list(JOIN _libtorch_version "." LibTorch_VERSION)
  find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LibTorch_C10_LIBRARY c10 HINTS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  if(LibTorch_VERSION VERSION_LESS 2.11 OR LibTorch_VERSION VERSION_GREATER_EQUAL 2.16)
    message(FATAL_ERROR "LibTorch ${LibTorch_VERSION} at ${LibTorch_ROOT} is outside the supported range 2.11 to 2.15. "
                        "Point LOCKSTEP_LIBTORCH at another one, or run ${_libtorch_setup} to get ${LibTorch_DEFAULT_VERSION}.")
  endif()
endif()

# Gloo's headers are not in the wheel (its code is); Debian's libgloo-dev has them. Never link -lgloo.
find_path(LibTorch_GLOO_INCLUDE NAMES gloo/algorithm.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_GLOO_INCLUDE
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run ${_libtorch_setup}, or set LOCKSTEP_LIBTORCH to a folder with include/torch and lib/libtorch_cpu.so (gloo headers: apt-get install libgloo-dev)")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::torch INTERFACE IMPORTED)
  target_include_directories(LibTorch::torch SYSTEM INTERFACE
    ${LibTorch_ROOT}/include ${LibTorch_ROOT}/include/torch/csrc/api/include ${LibTorch_GLOO_INCLUDE})
  target_compile_definitions(LibTorch::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO _GLIBCXX_USE_CXX11_ABI=1)
  # LibTorch is built by GCC; from 18 on Clang writes the constraints of templates into their symbols, and GCC does not.
  target_compile_options(LibTorch::torch INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>)
  # CMake adds the folder of these to the RPATH of each target that links them.
  target_link_libraries(LibTorch::torch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  target_link_options(LibTorch::torch INTERFACE -Wl,-rpath-link,${LibTorch_ROOT}/lib -Wl,--allow-shlib-undefined)
endif()
mark_as_advanced(LibTorch_ROOT LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_GLOO_INCLUDE)
