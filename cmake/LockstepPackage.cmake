# `cpack` makes an archive and a .deb of what `cmake --install` installs, without what is true of this machine only
# (component ThisMachine). tools/package runs it, for the variant without compiler with the component Unspecified alone;
# docs/install.md tells what a user does with them.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "Lockstep")
set(CPACK_PACKAGE_CONTACT "The Lockstep developers")
set(CPACK_PACKAGE_FILE_NAME lockstep-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_INSTALL_CMAKE_PROJECTS 
  "${CMAKE_BINARY_DIR};${PROJECT_NAME};Unspecified;/;${CMAKE_BINARY_DIR};${PROJECT_NAME};Development;/")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)

# The .deb goes to /usr and depends on what lockstep-setup would install.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/debian-packages-run.txt _packages REGEX "^[^#]")
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/debian-packages-cells.txt _of_cells REGEX "^[^#]")
list(JOIN _packages ", " _run_depends)
list(APPEND _packages ${_of_cells})
list(JOIN _packages ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
# Either one has the programs of a session.
set(CPACK_DEBIAN_PACKAGE_CONFLICTS lockstep-run)
# What a plain program that links Lockstep::lockstep is built with.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, libgloo-dev")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Cells of C++ with LibTorch run on every rank of a data-parallel job at once, and
inspectors find which rank, parameter or step differs and who waits for whom.
Run lockstep-setup once: it gets LibTorch, which is not part of this package.")
include(CPack)

# The variant without compiler (tools/package --run-only), for machines that run files of `lockstep build`.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/CPackRunOnly.cmake @ONLY CONTENT [[
include(@CMAKE_BINARY_DIR@/CPackConfig.cmake)
set(CPACK_PACKAGE_NAME lockstep-run)
set(CPACK_DEBIAN_PACKAGE_NAME lockstep-run)
set(CPACK_PACKAGE_FILE_NAME lockstep-run-@PROJECT_VERSION@-linux-@CMAKE_SYSTEM_PROCESSOR@)
set(CPACK_INSTALL_CMAKE_PROJECTS "@CMAKE_BINARY_DIR@;@PROJECT_NAME@;Unspecified;/")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "@_run_depends@")
set(CPACK_DEBIAN_PACKAGE_CONFLICTS lockstep)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Runs session scripts that `lockstep build` has compiled ahead on every rank of a
data-parallel job, and inspectors find which rank, parameter or step differs.
This package has no compiler of cells; the package lockstep has it.
Run lockstep-setup once: it gets LibTorch, which is not part of this package.")
]])
