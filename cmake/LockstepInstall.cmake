# `cmake --install`: programs into bin/, liblockstep into lib/, the headers of its rooms into include/lockstep/, and the
# package for find_package(Lockstep) into lib/cmake/Lockstep/. The tree may be moved as a whole; LibTorch stays where it is.
include(CMakePackageConfigHelpers)

set(LOCKSTEP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
set(LOCKSTEP_HEADER_DIR ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

# Sources include headers by room ("collectives/dist.h"); a user of the package may write <lockstep/collectives/dist.h> as well.
install(TARGETS lockstep EXPORT LockstepTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${LOCKSTEP_HEADER_DIR} ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${LOCKSTEP_PACKAGE_DIR})

# What plain programs include, and what the cells' precompiled header is made of.
foreach(room protocol collectives ddp inspectors)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${room} DESTINATION ${LOCKSTEP_HEADER_DIR} FILES_MATCHING PATTERN "*.h")
endforeach()
foreach(header worker/cell/cell.h worker/cell/kept_values.h worker/cell/openmp/omp.h worker/cell/show.h worker/cell/show_fields.h worker/cell/show_kinds.h
        worker/cell/warm_prelude.h)
  get_filename_component(room ${header} DIRECTORY)
  install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${LOCKSTEP_HEADER_DIR}/${room})
endforeach()

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/LockstepConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/LockstepConfig.cmake
  INSTALL_DESTINATION ${LOCKSTEP_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/cmake/LockstepConfig.cmake
  ${CMAKE_BINARY_DIR}/cmake/LockstepConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/FindLibTorch.cmake
  DESTINATION ${LOCKSTEP_PACKAGE_DIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/scripts DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
