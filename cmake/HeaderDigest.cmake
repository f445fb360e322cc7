# Run in each build: writes a digest of the headers that cells are compiled with. Objects that `lockstep build` has made fit
# workers whose installation has the same digest (protocol/installation.h).
#   SOURCE_DIR  the tree
#   OUTPUT      the file; it keeps its time where nothing has changed
cmake_policy(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/CellHeaders.cmake)
lockstep_cell_headers(${SOURCE_DIR} headers)
list(SORT headers)
set(text "")
foreach(header IN LISTS headers)
  file(SHA256 ${SOURCE_DIR}/${header} digest)
  string(APPEND text "${header} ${digest}\n")
endforeach()
string(SHA256 digest "${text}")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${digest}\n")
