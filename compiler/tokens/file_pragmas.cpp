#include "compiler/tokens/file_pragmas.h"

#include <clang/Lex/Pragma.h>

#include <stdexcept>

#include "compiler/tokens/cell_tokens.h"

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

/// Makes the cell count as a system header from here on, and what it includes.
class LibraryPragma : public PragmaHandler {
 public:
  LibraryPragma() : PragmaHandler("library") {}

  void HandlePragma(Preprocessor& preprocessor, PragmaIntroducer, Token& token) override {
    auto& sources = preprocessor.getSourceManager();
    const PresumedLoc place = sources.getPresumedLoc(token.getLocation());
    sources.AddLineNote(token.getLocation(), place.getLine() + 1, sources.getLineTableFilenameID(place.getFilename()),
                        /*IsFileEntry=*/false, /*IsFileExit=*/false, SrcMgr::C_System);
  }
};

void replace(Preprocessor& preprocessor, llvm::StringRef space, std::unique_ptr<FilePragma> handler) {
  // Handlers are removed by their name; the preprocessor owns the one that is added.
  preprocessor.RemovePragmaHandler(space, handler.get());
  preprocessor.AddPragmaHandler(space, handler.release());
}

}  // namespace

void set_up_pragmas(Preprocessor& preprocessor) {
  preprocessor.AddPragmaHandler("lockstep", new LibraryPragma());  // the preprocessor owns it
  replace(preprocessor, "", std::make_unique<FilePragma>("once", &Preprocessor::HandlePragmaOnce));
  for (const char* space : {"GCC", "clang"})
    replace(preprocessor, space,
            std::make_unique<FilePragma>("system_header", &Preprocessor::HandlePragmaSystemHeader));
}

void refuse_directives_of_files(const std::string& text, const LangOptions& language) {
  const Tokens tokens = raw_tokens(text, language);
  const auto is_word = [&](size_t i, llvm::StringRef word) {
    return is_at(tokens, i, tok::raw_identifier) && tokens[i].getRawIdentifier() == word;
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].isAtStartOfLine()) continue;
    if (tokens[i].is(tok::hash) && is_word(i + 1, "embed"))
      throw std::runtime_error(
          "#embed searches beside the file that contains it, and a cell is not a file: read the data at run time");
    const size_t module = is_word(i, "export") ? i + 1 : i;
    if (is_word(module, "module") && is_at(tokens, module + 1, tok::raw_identifier) && module + 2 < tokens.size() &&
        tokens[module + 2].isOneOf(tok::semi, tok::period, tok::colon, tok::l_square))
      throw std::runtime_error("a cell is not a module: remove the module declaration");
  }
}

}  // namespace lockstep::compiler
