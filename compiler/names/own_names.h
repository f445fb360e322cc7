// Finds the declarations of the precompiled header that the compiler itself refers to: the function that shows the
// value of a last expression, the flag that loops test, and the variables of a rank. They are looked up before the
// first cell is parsed, so that no definition of a cell can replace them.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

struct OwnNames {
  clang::FunctionTemplateDecl* show_value = nullptr;  // lockstep::show_value
  clang::VarDecl* poll_requested = nullptr;  // lockstep_poll_requested
  clang::FunctionDecl* poll = nullptr;  // lockstep_poll
  std::vector<clang::VarDecl*> values;  // rank, device, …: what cells see and can't call
};

/// While it exists, macros do not replace the names by which a magic calls Lockstep: `verify`, `VerifyOptions` and
/// `rtol` in `__lockstep::verify(net, __lockstep::VerifyOptions().rtol(1e-3))`.
class WithoutMacros {
 public:
  WithoutMacros(clang::Preprocessor& preprocessor, llvm::StringRef text);
  ~WithoutMacros();
  WithoutMacros(const WithoutMacros&) = delete;

 private:
  std::set<clang::MacroInfo*> disabled_;
};

/// Looks them up when the header has been read, before any cell. A name that the header lacks is nullptr.
OwnNames find_own_names(clang::ASTContext& context);

}  // namespace lockstep::compiler
