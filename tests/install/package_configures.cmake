# A user's project finds the package in PREFIX, and the LibTorch of the cache before another one in CMAKE_PREFIX_PATH.
set(build ${SCRATCH}/package-consumer)
file(REMOVE_RECURSE ${build})
file(WRITE ${SCRATCH}/decoy/include/torch/headeronly/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH 99\n")
set(ENV{XDG_CACHE_HOME} ${CACHE})
unset(ENV{LOCKSTEP_LIBTORCH})
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${CONSUMER} -B ${build} -G ${GENERATOR} "-DCMAKE_PREFIX_PATH=${SCRATCH}/decoy;${PREFIX}"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${build}/CMakeCache.txt found REGEX "^LibTorch_ROOT:")
file(REAL_PATH ${CACHE}/lockstep/libtorch/${VERSION}/torch expected)
if(NOT found STREQUAL "LibTorch_ROOT:PATH=${expected}")
  message(FATAL_ERROR "expected LibTorch_ROOT ${expected}, got ${found}")
endif()
