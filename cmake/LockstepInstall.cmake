# `cmake --install`: programs into bin/, liblockstep into lib/, the headers that programs need into include/lockstep/, and the
# package for find_package(Lockstep) into lib/cmake/Lockstep/. The tree may be moved as a whole; LibTorch stays where it is.
# bin/lockstep-setup gets LibTorch and names missing Debian packages; it shares files with tools/setup.
#
# Components: what runs built files and plain programs has no component of its own ("Unspecified"); Development adds
# what compiling needs, cells with lockstep-compiler and programs with the package; ThisMachine has what is true where
# the build was made; GpuBundle has what tools/gpu-bundle packs besides (lockstep_gpu_bundle), and is installed only when
# it is named.
include(CMakePackageConfigHelpers)

set(LOCKSTEP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
set(LOCKSTEP_HEADER_DIR ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

# A user of the package includes <lockstep/dist.h>; the headers include each other by room ("collectives/dist.h").
install(TARGETS lockstep lockstep_interpose EXPORT LockstepTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_COMPONENT Development
  INCLUDES DESTINATION ${LOCKSTEP_HEADER_DIR} ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${LOCKSTEP_PACKAGE_DIR} COMPONENT Development)

# What programs include, and what the cells' precompiled header is made of.
install(CODE "set(SOURCE_DIR ${CMAKE_SOURCE_DIR})\nset(HEADER_DIR ${LOCKSTEP_HEADER_DIR})" COMPONENT Development)
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/InstallHeaders.cmake COMPONENT Development)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/LockstepConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/LockstepConfig.cmake
  INSTALL_DESTINATION ${LOCKSTEP_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/cmake/LockstepConfig.cmake
  ${CMAKE_BINARY_DIR}/cmake/LockstepConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/FindLibTorch.cmake
  DESTINATION ${LOCKSTEP_PACKAGE_DIR} COMPONENT Development)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_SOURCE_DIR}/shell/completion/lockstep.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lockstep)
install(FILES ${CMAKE_SOURCE_DIR}/shell/completion/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/scripts DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT Development)

install(PROGRAMS ${CMAKE_SOURCE_DIR}/tools/lockstep-setup DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES
  ${CMAKE_SOURCE_DIR}/tools/messages.sh
  ${CMAKE_SOURCE_DIR}/tools/debian.sh
  ${CMAKE_SOURCE_DIR}/tools/libtorch.sh
  ${CMAKE_SOURCE_DIR}/tools/libtorch.sha256
  ${CMAKE_SOURCE_DIR}/tools/debian-packages-run.txt
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/setup)
install(FILES ${CMAKE_SOURCE_DIR}/tools/debian-packages-cells.txt
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/setup COMPONENT Development)

# Which LibTorch the programs use (protocol/installation.h). Where the build found it holds on this machine only, so that
# packages leave it out.
install(FILES ${CMAKE_BINARY_DIR}/lib/lockstep/libtorch.version ${CMAKE_BINARY_DIR}/lib/lockstep/headers.digest
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
# For all users of the machine: LibTorch and the precompiled header go along, to LOCKSTEP_HOME if the environment has it,
# to lib/lockstep/home otherwise: cmake --install BUILD --component Home, or LOCKSTEP_HOME=DIR cmake --install BUILD.
install(CODE [[
  execute_process(COMMAND ${CMAKE_INSTALL_PREFIX}/bin/lockstep-setup --shared COMMAND_ERROR_IS_FATAL ANY)]]
  COMPONENT Home EXCLUDE_FROM_ALL)
install(CODE [[
  if(NOT "$ENV{LOCKSTEP_HOME}" STREQUAL "" AND "$ENV{DESTDIR}" STREQUAL "" AND NOT CMAKE_INSTALL_COMPONENT)
    execute_process(COMMAND ${CMAKE_INSTALL_PREFIX}/bin/lockstep-setup --shared COMMAND_ERROR_IS_FATAL ANY)
  endif()]]
  COMPONENT ThisMachine)
install(FILES ${CMAKE_BINARY_DIR}/lib/lockstep/libtorch.folder DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep
  COMPONENT ThisMachine)
