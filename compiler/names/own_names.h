// The declarations of the precompiled header that the compiler itself refers to: what shows the value of a last
// expression, and what loops look at. They are found before the first cell is read, so that nothing that a cell
// defines, hides or overloads can stand in for them.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

struct OwnNames {
  clang::FunctionTemplateDecl* show_value = nullptr;  // lockstep::show_value
  clang::VarDecl* poll_requested = nullptr;           // lockstep_poll_requested
  clang::FunctionDecl* poll = nullptr;                // lockstep_poll
};

/// Takes the user's macros off the names by which a magic reaches what is ours, until its end: `verify`,
/// `VerifyOptions` and `rtol` in `__lockstep::verify(net, __lockstep::VerifyOptions().rtol(1e-3))`.
class WithoutMacros {
 public:
  WithoutMacros(clang::Preprocessor& preprocessor, llvm::StringRef text);
  ~WithoutMacros();
  WithoutMacros(const WithoutMacros&) = delete;

 private:
  std::set<clang::MacroInfo*> disabled_;
};

/// Looks them up. Call when the header has been read, before any cell is. A name that the header lacks stays nullptr.
OwnNames find_own_names(clang::ASTContext& context);

}  // namespace lockstep::compiler
