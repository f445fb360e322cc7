#include "compiler/file_pragmas.h"

#include <clang/Lex/Pragma.h>

namespace lockstep::compiler {

using namespace clang;

namespace {

class FilePragma : public PragmaHandler {
 public:
  using Action = void (Preprocessor::*)(Token&);
  FilePragma(llvm::StringRef name, Action action) : PragmaHandler(name), action_(action) {}

  void HandlePragma(Preprocessor& preprocessor, PragmaIntroducer, Token& token) override {
    const auto* lexer = preprocessor.getCurrentFileLexer();
    if (lexer && lexer->getFileEntry()) (preprocessor.*action_)(token);
  }

 private:
  Action action_;
};

void replace(Preprocessor& preprocessor, llvm::StringRef space, std::unique_ptr<FilePragma> handler) {
  // Handlers are removed by their name; the preprocessor owns the one that is added.
  preprocessor.RemovePragmaHandler(space, handler.get());
  preprocessor.AddPragmaHandler(space, handler.release());
}

}  // namespace

void ignore_file_pragmas_in_cells(Preprocessor& preprocessor) {
  replace(preprocessor, "", std::make_unique<FilePragma>("once", &Preprocessor::HandlePragmaOnce));
  for (const char* space : {"GCC", "clang"})
    replace(preprocessor, space,
            std::make_unique<FilePragma>("system_header", &Preprocessor::HandlePragmaSystemHeader));
}

}  // namespace lockstep::compiler
