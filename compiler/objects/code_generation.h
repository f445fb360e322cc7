// From what clang has read to an object file: one module per cell, its initialisers and statements as a table of steps.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"
#include "compiler/objects/resident_symbols.h"
#include "compiler/parser/cell_parser.h"
#include "compiler/parser/declarations.h"

namespace lockstep::compiler {

struct GeneratedStep {
  int line = 0;
  size_t item = 0;  // of the cell; kNoItem: it belongs to none
  std::vector<const clang::NamedDecl*> initialises;
  static constexpr size_t kNoItem = static_cast<size_t>(-1);
};

struct GeneratedObject {
  std::string object;  // ELF, relocatable
  std::vector<GeneratedStep> steps;
  std::vector<std::string> symbols;  // that it defines
};

/// How code is made: each combination is a code generator of its own.
struct CodeMode {
  int optimize = 0;  // 0 to 3
  bool debug = false;
  auto operator<=>(const CodeMode&) const = default;
};

class CodeGeneration {
 public:
  CodeGeneration(clang::CompilerInstance& instance, ResidentSymbols& resident);

  /// What clang reads from the header outside of any cell, while code is generated above all.
  void hear(const Event& event);
  /// Lets a generator hear of the header, and throws away what it makes of it.
  void warm_up();

  /// `cell_name`: how its functions are called; `declared`: what it defines. Throws std::runtime_error when clang could
  /// not make code, for a reason that is in the diagnostics.
  GeneratedObject generate(const ReadCell& cell, const CellDeclarations& declared, const std::string& cell_name,
                           const std::string& tag, const std::string& entry, const CodeMode& mode);

 private:
  struct Generator {
    std::unique_ptr<clang::CodeGenOptions> options;
    std::unique_ptr<clang::CodeGenerator> code;
    size_t known = 0;  // events of history_ that it was told
    llvm::SmallVector<clang::FunctionDecl*, 0> not_made;  // by its last module: see ResidentSymbols
  };
  Generator& generator(const CodeMode& mode);
  void tell(clang::CodeGenerator& code, const Event& event);
  void catch_up(Generator& generator);
  std::string emit(llvm::Module& module, const CodeMode& mode, const clang::CodeGenOptions& options);

  clang::CompilerInstance& instance_;
  ResidentSymbols& resident_;
  llvm::LLVMContext llvm_;
  std::map<CodeMode, Generator> generators_;
  std::vector<Event> history_;
  clang::CodeGenerator* active_ = nullptr;  // while it generates
};

}  // namespace lockstep::compiler
