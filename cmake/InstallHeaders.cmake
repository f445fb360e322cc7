# Run by `cmake --install`: installs what a program includes (lockstep/*.h), what the cells' precompiled header is made of, and the
# headers of the tree that these include, directly or not; no others. In lockstep/ of the prefix's include folder a header has its
# path in the tree; those of lockstep/ are at its top. Walked when the tree is installed: an edited #include needs no configuring.
#   SOURCE_DIR  the tree
#   HEADER_DIR  the folder for the headers, relative to the prefix
cmake_policy(VERSION 3.25)
set(left lockstep/dist.h lockstep/ddp.h lockstep/inspect.h worker/cell/warm_prelude.h worker/cell/openmp/omp.h)
set(headers "")
while(left)
  list(POP_FRONT left header)
  if(header IN_LIST headers)
    continue()
  endif()
  list(APPEND headers ${header})
  file(STRINGS ${SOURCE_DIR}/${header} lines REGEX "^ *# *include *[\"<]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*).*" "\\1" included "${line}")
    if(EXISTS ${SOURCE_DIR}/${included})
      list(APPEND left ${included})
    endif()
  endforeach()
endwhile()

foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  string(REGEX REPLACE "^lockstep$" "" folder "${folder}")
  file(INSTALL ${SOURCE_DIR}/${header} DESTINATION "${CMAKE_INSTALL_PREFIX}/${HEADER_DIR}/${folder}")
endforeach()
