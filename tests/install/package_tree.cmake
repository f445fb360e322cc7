# Installs what a package has (no component ThisMachine) to one place and moves it to PREFIX. Nothing in it may name the
# LibTorch of this machine: programs look for libraries beside themselves only, and LibTorch's folder is not recorded.
file(REMOVE_RECURSE ${PREFIX} ${SCRATCH}/package-first)
foreach(component Unspecified Development)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${SCRATCH}/package-first --component ${component}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME ${SCRATCH}/package-first ${PREFIX})

foreach(file bin/lockstep-setup bin/lockstep-compiler include/lockstep/dist.h lib/liblockstep.so share/lockstep/setup/libtorch.sha256 share/lockstep/scripts/lessons/01-ddp-from-scratch.cpp
             share/lockstep/examples/train/train.cpp)
  if(NOT EXISTS ${PREFIX}/${file})
    message(SEND_ERROR "the package lacks ${file}")
  endif()
endforeach()
if(EXISTS ${PREFIX}/lib/lockstep/libtorch.folder)
  message(SEND_ERROR "the package has libtorch.folder, which is true of this machine only")
endif()
file(STRINGS ${PREFIX}/lib/lockstep/libtorch.version version)
if(NOT version STREQUAL VERSION)
  message(SEND_ERROR "the package is for LibTorch ${version}, and the build has ${VERSION}")
endif()
foreach(file bin/lockstep bin/lockstep-compiler bin/lockstep-worker lib/liblockstep.so)
  execute_process(COMMAND ${READELF} -d ${PREFIX}/${file} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "R(UN)?PATH[^\n]*" paths "${dynamic}")
  if(NOT paths MATCHES "^RUNPATH\\) +Library runpath: \\[\\$ORIGIN/\\.\\./lib\\]$")
    message(SEND_ERROR "${file} looks for libraries elsewhere than beside itself: ${paths}")
  endif()
endforeach()

# In the user's cache LibTorch has another path than the build knows.
file(REMOVE_RECURSE ${CACHE}/lockstep/libtorch)
file(MAKE_DIRECTORY ${CACHE}/lockstep/libtorch/${VERSION})
file(CREATE_LINK ${LIBTORCH} ${CACHE}/lockstep/libtorch/${VERSION}/torch SYMBOLIC)
