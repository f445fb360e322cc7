#include "compiler/names/own_names.h"

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

template <typename Declaration>
Declaration* find_declared(ASTContext& context, DeclContext& inside, const char* name) {
  for (NamedDecl* one : inside.lookup(&context.Idents.get(name)))
    if (auto* found = llvm::dyn_cast<Declaration>(one)) return found;
  return nullptr;
}

bool is_raw_name(const Tokens& tokens, size_t i) { return is_at(tokens, i, tok::raw_identifier); }

}  // namespace

WithoutMacros::WithoutMacros(Preprocessor& preprocessor, llvm::StringRef text) {
  constexpr llvm::StringRef kOwn = "__lockstep";
  if (!text.contains(kOwn)) return;
  const Tokens tokens = raw_tokens(text, preprocessor.getLangOpts());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_raw_name(tokens, i) || tokens[i].getRawIdentifier() != kOwn) continue;
    // These are the names after it: a::b(...).c(...)
    for (size_t k = i + 1;
         (is_at(tokens, k, tok::coloncolon) || is_at(tokens, k, tok::period)) && is_raw_name(tokens, k + 1);) {
      auto* name = preprocessor.getIdentifierInfo(tokens[k + 1].getRawIdentifier());
      if (auto* macro = preprocessor.getMacroInfo(name); macro && macro->isEnabled() && disabled_.insert(macro).second)
        macro->DisableMacro();
      k += 2;
      while (k < tokens.size() && tokens[k].isOneOf(tok::l_paren, tok::l_brace)) k = after_bracket(tokens, k);
    }
  }
}

WithoutMacros::~WithoutMacros() {
  for (auto* macro : disabled_) macro->EnableMacro();
}

OwnNames find_own_names(ASTContext& context) {
  OwnNames names;
  auto& unit = *context.getTranslationUnitDecl();
  names.poll_requested = find_declared<VarDecl>(context, unit, "lockstep_poll_requested");
  names.poll = find_declared<FunctionDecl>(context, unit, "lockstep_poll");
  for (const char* name : {"rank", "world_size", "local_rank", "node_rank", "gpu_id", "device"})
    if (auto* value = find_declared<VarDecl>(context, unit, name)) names.values.push_back(value);
  if (auto* space = find_declared<NamespaceDecl>(context, unit, "lockstep"))
    names.show_value = find_declared<FunctionTemplateDecl>(context, *space, "show_value");
  return names;
}

}  // namespace lockstep::compiler
