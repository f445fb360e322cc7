# Run by `cmake --install`: installs what a program includes (lockstep/*.h), what the cells' precompiled header is made of, and the
# headers of the tree that these include, directly or not; no others. In lockstep/ of the prefix's include folder a header has its
# path in the tree; those of lockstep/ are at its top. Walked when the tree is installed: an edited #include needs no configuring.
#   SOURCE_DIR  the tree
#   HEADER_DIR  the folder for the headers, relative to the prefix
#   MORE_HEADERS  others that are installed with what they include
cmake_policy(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/CellHeaders.cmake)
lockstep_cell_headers(${SOURCE_DIR} headers ${MORE_HEADERS})

foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  string(REGEX REPLACE "^lockstep$" "" folder "${folder}")
  file(INSTALL ${SOURCE_DIR}/${header} DESTINATION "${CMAKE_INSTALL_PREFIX}/${HEADER_DIR}/${folder}")
endforeach()
