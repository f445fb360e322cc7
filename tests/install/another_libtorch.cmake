# Points the consumer at a LibTorch that claims another supported version: configuring must fail and say which is which.
set(other ${SCRATCH}/other-libtorch)
file(MAKE_DIRECTORY ${other}/lib ${other}/include/torch/headeronly)
foreach(library torch_cpu c10)
  file(CREATE_LINK ${LIBTORCH}/lib/lib${library}.so ${other}/lib/lib${library}.so SYMBOLIC)
endforeach()
file(WRITE ${other}/include/torch/headeronly/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH 99\n")

execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/other-consumer -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${PREFIX} -DLOCKSTEP_LIBTORCH=${other}
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
if(result EQUAL 0 OR NOT errors MATCHES "was built against LibTorch [0-9.]+, and LibTorch 2.13.99 was found")
  message(FATAL_ERROR "expected a refusal that names both versions, got (${result}):\n${errors}")
endif()
