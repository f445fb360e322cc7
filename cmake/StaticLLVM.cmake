# Clang and LLVM out of Debian's archives, for a compiler of cells that needs no library of LLVM (compiler/CMakeLists.txt).
# Of the archives the linker takes what is used, with --gc-sections.
#
# lld sets up every target that LLVM was built with: for all but X86 empty functions stand in, so that their code is left
# out. Polly, which Debian's LLVM registers with every compilation, has one that adds nothing.
execute_process(COMMAND ${LOCKSTEP_LLVM_ROOT}/bin/llvm-config --targets-built OUTPUT_VARIABLE _targets
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(_targets)
list(REMOVE_ITEM _targets X86)
set(_text "#include <llvm/Passes/PassPlugin.h>\n
llvm::PassPluginLibraryInfo getPollyPluginInfo() { return {LLVM_PLUGIN_API_VERSION, \"\", \"\", [](llvm::PassBuilder&) {}}; }\n
extern \"C\" {\n")
foreach(_target IN LISTS _targets)
  foreach(_part Target TargetInfo TargetMC AsmPrinter AsmParser)
    string(APPEND _text "void LLVMInitialize${_target}${_part}() {}\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/left_out_of_llvm.cpp CONTENT "${_text}}\n" @ONLY)
add_library(lockstep_left_out_of_llvm OBJECT ${CMAKE_BINARY_DIR}/generated/left_out_of_llvm.cpp)
lockstep_target(lockstep_left_out_of_llvm)
target_include_directories(lockstep_left_out_of_llvm SYSTEM PRIVATE ${LOCKSTEP_LLVM_INCLUDE})

file(GLOB _clang ${LOCKSTEP_LLVM_ROOT}/lib/libclang*.a)
file(GLOB _llvm ${LOCKSTEP_LLVM_ROOT}/lib/libLLVM*.a)
find_library(LOCKSTEP_STATIC_LIBZSTD libzstd.a REQUIRED)
mark_as_advanced(LOCKSTEP_STATIC_LIBZSTD)
set(LOCKSTEP_COMPILER_LIBRARIES $<TARGET_OBJECTS:lockstep_left_out_of_llvm> ${_clang} ${_llvm} ${LOCKSTEP_STATIC_LIBZ}
  ${LOCKSTEP_STATIC_LIBZSTD})
