#include "compiler/parser/openmp.h"

#include <stdexcept>

namespace lockstep::compiler {

using namespace clang;

void OpenMp::start_cell(const Tokens& tokens, const std::set<std::string>& mentioned, const NameTable& names) {
  const bool has_directive =
      llvm::any_of(tokens, [](const Token& token) { return token.is(tok::annot_pragma_openmp); });
  used_ |= has_directive;
  if (!used_) return set(false);
  for (const std::string& name : mentioned) {
    const auto definitions = names.find(name);
    if (definitions.empty() || !llvm::isa_and_nonnull<BindingDecl>(definitions.back()->decl)) continue;
    if (has_directive)
      throw std::runtime_error("a cell with OpenMP directives can't use the structured binding '" + name +
                               "' of a cell: copy it to a variable in a cell before this one");
    return set(false);
  }
  set(true);
}

}  // namespace lockstep::compiler
