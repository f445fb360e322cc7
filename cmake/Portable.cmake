# LOCKSTEP_PORTABLE: the programs and libraries run on every x86-64 Linux that runs PyPI's torch, which is what the wheel is
# made of (tools/wheel). A system at LOCKSTEP_FLOOR has RHEL 8's versions of the C and C++ libraries, or newer ones.
#
# Programs are compiled as usual, and linked in another way:
#   - against stand-ins of the system's libraries, which end at the floor (portable/stubs.py);
#   - with the functions of newer C libraries that they use (portable/newer.c, clockwait.c, start.c);
#   - what is newer in the C++ library comes from libstdc++.a, and is hidden, while all the rest comes from the system's:
#     a process has one copy of exceptions and streams, which it shares with LibTorch;
#   - ZeroMQ and libcrypto are linked in, libdw and libelf come along (tools/portable-libraries).
# The targets wheel_files and wheel_torch_files then fail if a file of the wheel needs more than the floor.
option(LOCKSTEP_PORTABLE "Link for every system that has the torch of PyPI" OFF)
if(NOT LOCKSTEP_PORTABLE)
  return()
endif()
set(LOCKSTEP_FLOOR GLIBC_2.28 GLIBCXX_3.4.25 CXXABI_1.3.11 GCC_7.0.0)
set(LOCKSTEP_PORTABLE_LIBRARIES "" CACHE PATH "The folder that tools/portable-libraries prints")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang OR NOT EXISTS ${LOCKSTEP_PORTABLE_LIBRARIES}/libzmq.a)
  message(FATAL_ERROR "LOCKSTEP_PORTABLE needs Clang, and the folder that tools/portable-libraries prints in "
                      "LOCKSTEP_PORTABLE_LIBRARIES. tools/wheel sets both")
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# lockstep_run(COMMAND…): while CMake configures.
function(lockstep_run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# lockstep_system_file(VARIABLE NAME): where the compiler finds it.
function(lockstep_system_file variable name)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "LOCKSTEP_PORTABLE: ${CMAKE_CXX_COMPILER} does not find ${name}")
  endif()
  set(${variable} ${file} PARENT_SCOPE)
endfunction()

set(_source ${CMAKE_SOURCE_DIR}/cmake/portable)
set(_made ${CMAKE_BINARY_DIR}/portable)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${_source}/stubs.py ${_source}/versions.py ${_source}/clockwait.c ${_source}/newer.c ${_source}/start.c)
set(_system_libraries)
foreach(_name libstdc++.so.6 libgcc_s.so.1 libm.so.6 libc.so.6 ld-linux-x86-64.so.2 libpthread.so.0 libdl.so.2)
  lockstep_system_file(_file ${_name})
  list(APPEND _system_libraries ${_file})
endforeach()
lockstep_run(${Python3_EXECUTABLE} ${_source}/stubs.py ${_made} ${LOCKSTEP_FLOOR} -- ${_system_libraries})
foreach(_name clockwait newer start)
  lockstep_run(${CMAKE_C_COMPILER} -O2 -fPIC -Wall -Wextra -Werror -c ${_source}/${_name}.c -o ${_made}/${_name}.o)
endforeach()
lockstep_run(${CMAKE_AR} rcs ${_made}/libclockwait.a ${_made}/clockwait.o)
foreach(_name libstdc++.a libgcc.a libc_nonshared.a)
  lockstep_system_file(_file ${_name})
  list(APPEND _archives ${_file})
endforeach()
list(GET _archives 0 _libstdcxx)
list(REMOVE_AT _archives 0)

# On systems before glibc 2.34, libpthread and libdl have functions that the stand-in of libc has: so they are asked for
# although no symbol names them.
set(_c_libraries ${_made}/newer.o ${_made}/libclockwait.a ${_archives} ${_made}/libm.so.6 ${_made}/libc.so.6 ${_made}/ld-linux-x86-64.so.2
  ${_made}/libgcc_s.so.1 -Wl,--push-state,--no-as-needed ${_made}/libpthread.so.0 ${_made}/libdl.so.2 -Wl,--pop-state)
add_compile_options(-ffunction-sections -fdata-sections)  # for --gc-sections and --icf
set(_linker_flags -fuse-ld=lld -nodefaultlibs -Wl,--gc-sections -Wl,--icf=safe -Wl,--undefined-version
  -Wl,--exclude-libs,libstdc++.a:libgcc.a:libc_nonshared.a:libzmq.a:libcrypto.a:libeu.a:libz.a:libzstd.a)
list(JOIN _linker_flags " " _flags)
string(APPEND CMAKE_SHARED_LINKER_FLAGS " ${_flags}")
string(APPEND CMAKE_EXE_LINKER_FLAGS " ${_flags} ${_made}/start.o")
list(JOIN _c_libraries " " CMAKE_CXX_STANDARD_LIBRARIES)
string(PREPEND CMAKE_CXX_STANDARD_LIBRARIES "${_made}/libstdc++.so.6 ${_libstdcxx} ")

# lockstep_link_library(SONAME MAP ARCHIVES… WITH LIBRARIES…): links whole ARCHIVES to lib/SONAME. libelf and libdw are
# shared libraries also here: their licence wants users to be able to replace them.
function(lockstep_link_library soname map)
  cmake_parse_arguments(PARSE_ARGV 2 link "" "" "ARCHIVES;WITH")
  list(TRANSFORM link_ARCHIVES PREPEND ${LOCKSTEP_PORTABLE_LIBRARIES}/)
  file(MAKE_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  lockstep_run(${CMAKE_C_COMPILER} -shared ${_linker_flags} -Wl,-z,defs -Wl,-soname,${soname} -Wl,-rpath,$ORIGIN
    -Wl,--version-script,${LOCKSTEP_PORTABLE_LIBRARIES}/${map} -Wl,--whole-archive ${link_ARCHIVES} -Wl,--no-whole-archive
    ${LOCKSTEP_PORTABLE_LIBRARIES}/libeu.a ${link_WITH} ${_c_libraries} -s -o ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${soname})
endfunction()
find_library(LOCKSTEP_STATIC_LIBZ libz.a REQUIRED)
find_library(LOCKSTEP_STATIC_LIBCRYPTO libcrypto.a REQUIRED)
mark_as_advanced(LOCKSTEP_STATIC_LIBZ LOCKSTEP_STATIC_LIBCRYPTO)
set(_libelf ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libelf.so.1)
set(_libdw ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdw.so.1)
lockstep_link_library(libelf.so.1 libelf.map ARCHIVES libelf_pic.a WITH ${LOCKSTEP_STATIC_LIBZ})
lockstep_link_library(libdw.so.1 libdw.map
  ARCHIVES libdw_pic.a libebl_pic.a libebl_backends_pic.a libcpu_pic.a libdwelf_pic.a libdwfl_pic.a
  WITH ${_libelf} ${LOCKSTEP_STATIC_LIBZ})

# What the rooms would find otherwise.
set(LOCKSTEP_LIBELF ${_libelf} CACHE FILEPATH "" FORCE)
set(LOCKSTEP_LIBDW ${_libdw} CACHE FILEPATH "" FORCE)
foreach(_variable ZeroMQ_LIBRARY pkgcfg_lib_ZeroMQ_zmq)
  set(${_variable} ${LOCKSTEP_PORTABLE_LIBRARIES}/libzmq.a CACHE FILEPATH "" FORCE)
endforeach()
set(pkgcfg_lib_Crypto_crypto ${LOCKSTEP_STATIC_LIBCRYPTO} CACHE FILEPATH "" FORCE)
find_path(LOCKSTEP_FMT_INCLUDE fmt/format.h REQUIRED)
mark_as_advanced(LOCKSTEP_FMT_INCLUDE)
foreach(_name fmt fmt-header-only)  # find_package(fmt) takes what is there
  add_library(fmt::${_name} INTERFACE IMPORTED)
  target_include_directories(fmt::${_name} INTERFACE ${LOCKSTEP_FMT_INCLUDE})
  target_compile_definitions(fmt::${_name} INTERFACE FMT_HEADER_ONLY=1)
endforeach()

# In a wheel, what is linked with LibTorch is in a folder of its own for each minor version, and finds the rest two folders
# above (python/CMakeLists.txt).
list(APPEND CMAKE_INSTALL_RPATH $ORIGIN/../../lib)

# lockstep_install_licences(COMPONENT FOLDER README PACKAGES…): the terms of all that is linked in or comes along, as Debian's
# PACKAGES have them, and the licences that they refer to, in the FOLDER of share/licenses. README says what is of which.
function(lockstep_install_licences component folder readme)
  set(folder lockstep/share/licenses/${folder})
  foreach(package IN LISTS ARGN)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${folder} RENAME ${package}
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
  foreach(licence Apache-2.0 GPL-2 GPL-3 LGPL-3)
    install(FILES /usr/share/common-licenses/${licence} DESTINATION ${folder}
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
  install(FILES ${readme} DESTINATION ${folder} RENAME README.md COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# lockstep_check_portable(TARGET FILES…): the target fails if a file needs more than the floor, or other libraries than those
# of each system, of torch, and of the wheel itself.
function(lockstep_check_portable name)
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/portable/check.py ${LOCKSTEP_FLOOR}
      -- ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 libgcc_s.so.1 libstdc++.so.6
         libtorch_cpu.so libc10.so libc10_cuda.so "libcudart.so.*" "liblockstep*.so*" libelf.so.1 libdw.so.1
      -- ${ARGN}
    COMMENT "Comparing what the wheel's files need with what every system has" VERBATIM)
endfunction()
