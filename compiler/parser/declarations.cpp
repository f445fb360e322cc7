#include "compiler/parser/declarations.h"

#include <clang/AST/DeclFriend.h>

namespace lockstep::compiler {

using namespace clang;

namespace {

class DeclarationCollector {
 public:
  DeclarationCollector(CellDeclarations& out, const std::string& tag, const CellDiagnostics& diagnostics, Sema& sema)
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
      for (auto* binding : bindings->bindings()) {
        add(binding, path, "variable", item, true, false);
        if (auto* held = binding->getHoldingVar()) {  // a tuple's element has a variable of that name
          tag(held);
          out_.variables.push_back(held);
        }
      }
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
    const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
    const auto* variable = llvm::dyn_cast<VarDecl>(decl);
    const bool of_c = (function && function->isExternC()) || (variable && variable->isExternC());
    auto* first = llvm::cast<NamedDecl>(decl->getCanonicalDecl());
    if (first != decl && !diagnostics_.is_of_this_cell(first->getLocation(), sema_.getSourceManager())) {
      if (of_c && !is_referred_to(first)) label(decl);
      return;  // redeclares an entity of an earlier cell or the header, and keeps its symbol
    }
    if (of_c) return label(decl);
    if (first->hasAttr<AbiTagAttr>() || (function && function->isReplaceableGlobalAllocationFunction())) return;
    llvm::StringRef tags[] = {tag_};
    first->addAttr(AbiTagAttr::CreateImplicit(context_, tags, 1));
  }

  /// Whether code of an earlier cell or of the header may refer to the symbol of this declaration.
  bool is_referred_to(const NamedDecl* first) const {
    if (sema_.getSourceManager().isLoadedSourceLocation(first->getLocation())) return true;
    for (const Decl* decl : first->redecls())
      if (decl->isReferenced() && !diagnostics_.is_of_this_cell(decl->getLocation(), sema_.getSourceManager()))
        return true;
    return false;
  }

  /// Gives an extern "C" definition a symbol of this cell.
  void label(NamedDecl* decl) {
    const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
    const auto* variable = llvm::dyn_cast<VarDecl>(decl);
    const bool definition = (function && function->isDefined()) || (variable && variable->hasDefinition());
    if (!definition || decl->hasAttr<AsmLabelAttr>()) return;
    const std::string name = decl->getNameAsString();
    const std::string symbol = name + "." + tag_;
    for (Decl* each : decl->redecls())
      if (!each->hasAttr<AsmLabelAttr>())
        each->addAttr(AsmLabelAttr::CreateImplicit(context_, symbol, /*IsLiteral=*/true));
    static std::set<std::string> defined;
    if (defined.insert(name).second) out_.c_names[symbol] = name;
  }

  /// Lookups find friends that a class defines by their arguments only, but their symbols are global.
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
  DeclarationCollector collector(out, tag, diagnostics, sema);
  for (size_t i = 0; i < cell.items.size(); ++i) {
    if (cell.items[i].statement) continue;
    for (const Event& event : cell.items[i].events)
      if (event.kind == Event::top_level) collector.visit(static_cast<Decl*>(event.decl), "", i);
  }
  return out;
}

}  // namespace lockstep::compiler
