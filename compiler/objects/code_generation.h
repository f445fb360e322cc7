// Generates an object file from clang's tree: a module per cell, with a table of its initialisers and statements.
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
  size_t item = 0;  // of the cell, or kNoItem
  std::vector<const clang::NamedDecl*> initialises;
  static constexpr size_t kNoItem = static_cast<size_t>(-1);
};

struct GeneratedObject {
  std::string object;  // ELF, relocatable
  std::vector<GeneratedStep> steps;
  std::vector<std::string> symbols;  // that it defines
};

/// Says how code is generated. Each combination has its own code generator.
struct CodeMode {
  int optimize = 0;  // 0 to 3
  bool debug = false;
  auto operator<=>(const CodeMode&) const = default;
};

class CodeGeneration {
 public:
  CodeGeneration(clang::CompilerInstance& instance, ResidentSymbols& resident);

  /// Adds a declaration that clang has read from the header outside of any cell, mostly while code is generated.
  void add(const Event& event);
  /// Passes the header to a generator, and discards the code.
  void warm_up();

  /// `cell_name` is the name of its functions, `declared` is what it defines. Throws std::runtime_error if clang can't
  /// generate code; the reason is in the diagnostics.
  GeneratedObject generate(const ReadCell& cell, const CellDeclarations& declared, const std::string& cell_name,
                           const std::string& tag, const std::string& entry, const CodeMode& mode);

 private:
  struct Generator {
    std::unique_ptr<clang::CodeGenOptions> options;
    std::unique_ptr<llvm::LLVMContext> llvm;  // of its last module: it keeps metadata and constants as long as it lives
    std::unique_ptr<clang::CodeGenerator> code;
    size_t known = 0;  // events of history_ that it has received
    llvm::SmallVector<clang::FunctionDecl*, 0> not_made;  // by its last module: see ResidentSymbols
  };
  Generator& generator(const CodeMode& mode);
  void forward(clang::CodeGenerator& code, const Event& event);
  void catch_up(Generator& generator);
  std::string emit(llvm::Module& module, const CodeMode& mode, const clang::CodeGenOptions& options);

  clang::CompilerInstance& instance_;
  ResidentSymbols& resident_;
  std::map<CodeMode, Generator> generators_;
  std::vector<Event> history_;
  clang::CodeGenerator* active_ = nullptr;  // while it generates
};

}  // namespace lockstep::compiler
