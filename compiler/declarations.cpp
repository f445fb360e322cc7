#include "compiler/declarations.h"

#include <clang/AST/DeclFriend.h>

namespace lockstep::compiler {

using namespace clang;

namespace {

class Collector {
 public:
  Collector(CellDeclarations& out, const std::string& tag, const CellDiagnostics& diagnostics, Sema& sema)
      : out_(out), tag_(tag), diagnostics_(diagnostics), sema_(sema), context_(sema.Context) {}

  void visit(Decl* decl, const std::string& path, size_t item) {
    if (decl->isInvalidDecl() || decl->isImplicit() ||
        !diagnostics_.is_of_this_cell(decl->getLocation(), sema_.getSourceManager()) ||
        sema_.getSourceManager().isInSystemHeader(decl->getLocation()))  // libraries keep their symbols
      return;
    if (auto* block = llvm::dyn_cast<LinkageSpecDecl>(decl)) return visit_all(block, path, item);
    if (auto* block = llvm::dyn_cast<ExportDecl>(decl)) return visit_all(block, path, item);
    if (auto* space = llvm::dyn_cast<NamespaceDecl>(decl)) {
      const std::string inner = path.empty() ? space->getNameAsString() : path + "::" + space->getNameAsString();
      if (space->isFirstDecl()) add(space, path, "namespace", item, false, false);
      return visit_all(space, inner, item);
    }
    if (auto* use = llvm::dyn_cast<UsingDecl>(decl)) {
      for (auto* shadow : use->shadows()) add(shadow, path, "alias", item, false, false);
      return;
    }
    if (auto* use = llvm::dyn_cast<UsingEnumDecl>(decl)) {
      for (auto* shadow : use->shadows()) add(shadow, path, "alias", item, false, false);
      return;
    }
    auto* named = llvm::dyn_cast<NamedDecl>(decl);
    if (!named || decl->getDeclContext()->isRecord()) return;
    if (auto* bindings = llvm::dyn_cast<DecompositionDecl>(decl)) {
      tag(bindings);
      out_.variables.push_back(bindings);
      for (auto* binding : bindings->bindings()) add(binding, path, "variable", item, true, false);
      return;
    }
    if (auto* variable = llvm::dyn_cast<VarDecl>(decl)) {
      if (isTemplateInstantiation(variable->getTemplateSpecializationKind()) ||
          llvm::isa<VarTemplateSpecializationDecl>(variable))
        return;
      if (variable->isThisDeclarationADefinition()) out_.variables.push_back(variable);
      return add(variable, path, "variable", item, true, true);
    }
    if (auto* function = llvm::dyn_cast<FunctionDecl>(decl)) {
      if (function->isTemplateInstantiation() || function->getTemplateSpecializationKind() != TSK_Undeclared) return;
      return add(function, path, "function", item, false, true);
    }
    if (auto* function = llvm::dyn_cast<FunctionTemplateDecl>(decl)) {
      tag(function->getTemplatedDecl());
      return add(function, path, "template", item, false, false);
    }
    if (auto* of_class = llvm::dyn_cast<ClassTemplateDecl>(decl)) {
      tag(of_class->getTemplatedDecl());
      tag_friends(of_class->getTemplatedDecl());
      return add(of_class, path, "template", item, false, false);
    }
    if (auto* of_variable = llvm::dyn_cast<VarTemplateDecl>(decl)) {
      tag(of_variable->getTemplatedDecl());
      return add(of_variable, path, "template", item, false, false);
    }
    if (llvm::isa<ClassTemplateSpecializationDecl>(decl)) return;
    if (llvm::isa<TypeAliasTemplateDecl, ConceptDecl>(decl)) return add(named, path, "template", item, false, false);
    if (auto* enumeration = llvm::dyn_cast<EnumDecl>(decl)) {
      if (!enumeration->isScoped())
        for (auto* enumerator : enumeration->enumerators()) add(enumerator, path, "variable", item, false, false);
      return add(enumeration, path, "type", item, false, true);
    }
    if (auto* record = llvm::dyn_cast<CXXRecordDecl>(decl)) {
      tag_friends(record);
      return add(record, path, "type", item, false, true);
    }
    if (llvm::isa<TypedefNameDecl>(decl)) return add(named, path, "alias", item, false, true);
    if (llvm::isa<NamespaceAliasDecl>(decl)) return add(named, path, "namespace", item, false, false);
  }

 private:
  void visit_all(DeclContext* inside, const std::string& path, size_t item) {
    std::vector<Decl*> decls(inside->decls_begin(), inside->decls_end());
    for (Decl* decl : decls) visit(decl, path, item);
  }

  void add(NamedDecl* decl, const std::string& path, const char* kind, size_t item, bool is_variable, bool tagged) {
    if (tagged) tag(decl);
    const std::string name = decl->getNameAsString();
    if (name.empty()) return;
    out_.names.push_back({path.empty() ? name : path + "::" + name, kind, decl, is_variable, item});
  }

  void tag(NamedDecl* decl) {
    if (decl->getCanonicalDecl() != decl &&
        !diagnostics_.is_of_this_cell(decl->getCanonicalDecl()->getLocation(), sema_.getSourceManager()))
      return;  // it goes on with what an earlier cell, or a header, has declared
    auto* first = llvm::cast<NamedDecl>(decl->getCanonicalDecl());
    if (first->hasAttr<AbiTagAttr>()) return;
    if (const auto* function = llvm::dyn_cast<FunctionDecl>(first)) {
      if (function->isReplaceableGlobalAllocationFunction()) return;
      if (function->isExternC()) return label_again(first);
    } else if (const auto* variable = llvm::dyn_cast<VarDecl>(first)) {
      if (variable->isExternC()) return label_again(first);
    }
    llvm::StringRef tags[] = {tag_};
    first->addAttr(AbiTagAttr::CreateImplicit(context_, tags, 1));
  }

  /// extern "C" leaves a name as it is. The first definition has it; one that an earlier cell has defined would be
  /// taken for it, so the later one gets a symbol of its own.
  void label_again(NamedDecl* decl) {
    if (decl->hasAttr<AsmLabelAttr>()) return;
    static std::set<std::string> defined;
    const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
    const auto* variable = llvm::dyn_cast<VarDecl>(decl);
    const bool definition = (function && function->isDefined()) || (variable && variable->hasDefinition());
    if (!definition) return;
    if (!defined.insert(decl->getNameAsString()).second)
      decl->addAttr(AsmLabelAttr::CreateImplicit(context_, decl->getNameAsString() + "." + tag_, /*IsLiteral=*/true));
  }

  /// Friends that a class defines are found by their arguments only, but their symbols are as global as any.
  void tag_friends(CXXRecordDecl* record) {
    if (!record->hasDefinition()) return;
    for (auto* one : record->getDefinition()->friends())
      if (auto* decl = one->getFriendDecl()) {
        if (auto* function_template = llvm::dyn_cast<FunctionTemplateDecl>(decl))
          decl = function_template->getTemplatedDecl();
        if (auto* function = llvm::dyn_cast<FunctionDecl>(decl); function && !llvm::isa<CXXMethodDecl>(function))
          tag(function);
      }
  }

  CellDeclarations& out_;
  const std::string& tag_;
  const CellDiagnostics& diagnostics_;
  Sema& sema_;
  ASTContext& context_;
};

}  // namespace

CellDeclarations declare(const ReadCell& cell, const std::string& tag, const CellDiagnostics& diagnostics, Sema& sema) {
  CellDeclarations out;
  Collector collector(out, tag, diagnostics, sema);
  for (size_t i = 0; i < cell.items.size(); ++i) {
    if (cell.items[i].statement) continue;
    for (const Event& event : cell.items[i].events)
      if (event.kind == Event::top_level) collector.visit(static_cast<Decl*>(event.decl), "", i);
  }
  return out;
}

}  // namespace lockstep::compiler
