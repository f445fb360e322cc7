#include "compiler/diagnostics/header_hint.h"

#include <clang/Basic/DiagnosticSema.h>
#include <clang/Lex/HeaderSearch.h>
#include <clang/Tooling/Inclusions/StandardLibrary.h>

namespace lockstep::compiler {

using namespace clang;
namespace stdlib = clang::tooling::stdlib;

namespace {

bool is_about_a_missing_name(unsigned id) {
  switch (id) {
    case diag::err_no_member:
    case diag::err_no_member_suggest:
    case diag::err_no_template:
    case diag::err_no_template_suggest:
    case diag::err_no_member_template:
    case diag::err_typename_nested_not_found:
    case diag::err_undeclared_var_use:
    case diag::err_undeclared_var_use_suggest:
    case diag::err_undeclared_use:
    case diag::err_unknown_typename:
    case diag::err_unknown_nested_typename_suggest:
    case diag::err_unknown_type_or_class_name_suggest:
    case diag::err_unknown_typename_suggest:
      return true;
    default:
      return false;
  }
}

bool is_installed(llvm::StringRef header, const Preprocessor& preprocessor) {
  const std::string name = header.trim("<>").str();
  auto& search = preprocessor.getHeaderSearchInfo();
  for (const auto& folder : search.search_dir_range())
    if (folder.isNormalDir() && search.getFileMgr().getVirtualFileSystem().exists(folder.getName().str() + "/" + name))
      return true;
  return false;
}

}  // namespace

std::optional<std::string> header_hint(const Diagnostic& info, const Preprocessor& preprocessor) {
  if (!is_about_a_missing_name(info.getID())) return std::nullopt;
  std::string name, scope;
  for (unsigned i = 0; i < info.getNumArgs(); ++i) {
    switch (info.getArgKind(i)) {
      case DiagnosticsEngine::ak_identifierinfo:
        if (const auto* identifier = info.getArgIdentifier(i); identifier && name.empty()) name = identifier->getName();
        break;
      case DiagnosticsEngine::ak_declarationname:
        if (name.empty()) name = DeclarationName::getFromOpaqueInteger(info.getRawArg(i)).getAsString();
        break;
      case DiagnosticsEngine::ak_declcontext: {
        const auto* context = reinterpret_cast<const DeclContext*>(info.getRawArg(i));
        const auto* space = llvm::dyn_cast_or_null<NamespaceDecl>(context);
        if (!space) return std::nullopt;  // a member of a class
        scope = space->getQualifiedNameAsString() + "::";
        break;
      }
      default:
        break;
    }
  }
  if (name.empty()) return std::nullopt;
  const bool qualified = !scope.empty();
  // Without a scope the name may be C's, or one of std after `using namespace std`.
  auto symbol = stdlib::Symbol::named(scope, name, qualified ? stdlib::Lang::CXX : stdlib::Lang::C);
  if (!symbol && !qualified) symbol = stdlib::Symbol::named("std::", name, stdlib::Lang::CXX);
  if (!symbol) return std::nullopt;
  for (const auto& header : symbol->headers())
    if (is_installed(header.name(), preprocessor))
      return (qualified || symbol->scope().empty()
                  ? ""
                  : "'" + symbol->qualifiedName().str() + "' is in " + header.name().str() + ": ") +
             "did you mean to `#include " + header.name().str() + "`?";
  return std::nullopt;
}

}  // namespace lockstep::compiler
