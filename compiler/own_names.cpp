#include "compiler/own_names.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

template <typename Declaration>
Declaration* find(ASTContext& context, DeclContext& inside, const char* name) {
  for (NamedDecl* one : inside.lookup(&context.Idents.get(name)))
    if (auto* found = llvm::dyn_cast<Declaration>(one)) return found;
  return nullptr;
}

}  // namespace

OwnNames find_own_names(ASTContext& context) {
  OwnNames names;
  auto& unit = *context.getTranslationUnitDecl();
  names.poll_requested = find<VarDecl>(context, unit, "lockstep_poll_requested");
  names.poll = find<FunctionDecl>(context, unit, "lockstep_poll");
  if (auto* space = find<NamespaceDecl>(context, unit, "lockstep"))
    names.show_value = find<FunctionTemplateDecl>(context, *space, "show_value");
  return names;
}

}  // namespace lockstep::compiler
