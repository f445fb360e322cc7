# Installs the build to one place and moves it to PREFIX, so that a path of the first place anywhere would show.
file(REMOVE_RECURSE ${SCRATCH})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${SCRATCH}/first OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${SCRATCH}/first ${PREFIX})

foreach(file include/lockstep/dist.h include/lockstep/ddp.h include/lockstep/inspect.h lib/liblockstep.so lib/liblockstep_interpose.so lib/cmake/Lockstep/LockstepConfig.cmake bin/lockstep bin/lockstep-worker bin/lockstep-compiler)
  if(NOT EXISTS ${PREFIX}/${file})
    message(SEND_ERROR "the installed tree lacks ${file}")
  endif()
endforeach()

# What users include, and what that needs; nothing of how collectives are carried out, and no precompiled header.
file(GLOB_RECURSE headers RELATIVE ${PREFIX}/include/lockstep ${PREFIX}/include/lockstep/*)
foreach(header IN LISTS headers)
  if(header MATCHES "^collectives/(transport|watch|log|interpose)/|_pch\\.h$|^(shell|compiler|tests)/" OR NOT header MATCHES "\\.h$|^inspectors/options/.*\\.def$|^worker/cell/older/source_location$")
    message(SEND_ERROR "${header} is installed, and no public header may need it")
  endif()
endforeach()
list(LENGTH headers count)
message(STATUS "${count} headers are installed")
