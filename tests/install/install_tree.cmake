# Installs the build to one place and moves it to PREFIX, so that a path of the first place anywhere would show.
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${SCRATCH}/first OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${SCRATCH}/first ${PREFIX})

foreach(file include/lockstep/collectives/dist.h lib/liblockstep.so lib/cmake/Lockstep/LockstepConfig.cmake bin/lockstep bin/lockstep-worker bin/lockstep-compiler)
  if(NOT EXISTS ${PREFIX}/${file})
    message(SEND_ERROR "the installed tree lacks ${file}")
  endif()
endforeach()
