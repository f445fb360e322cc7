#include "compiler/parser/questions.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

PrintingPolicy policy_of(const CompilerInstance& instance) {
  PrintingPolicy policy(instance.getLangOpts());
  policy.TerseOutput = true;
  policy.PolishForDeclaration = true;
  policy.SuppressUnwrittenScope = true;
  return policy;
}

/// Adds the text of the definition, and where a header has it.
void describe_source(const NamedDecl* decl, const CompilerInstance& instance, protocol::Inspection& answer) {
  const Decl* defined = decl;
  if (const auto* function = decl->getAsFunction(); function && function->getDefinition())
    defined = function->getDefinition();
  else if (const auto* record = llvm::dyn_cast<CXXRecordDecl>(decl); record && record->getDefinition())
    defined = record->getDefinition();
  if (const auto* function = llvm::dyn_cast<FunctionDecl>(defined);
      function && function->getDescribedFunctionTemplate())
    defined = function->getDescribedFunctionTemplate();
  const auto& sources = instance.getSourceManager();
  const SourceRange range(sources.getExpansionLoc(defined->getBeginLoc()),
                          sources.getExpansionLoc(defined->getEndLoc()));
  if (range.isInvalid()) return;
  answer.source = Lexer::getSourceText(CharSourceRange::getTokenRange(range), sources, instance.getLangOpts()).str();
  if (answer.cell) return;
  const PresumedLoc place = sources.getPresumedLoc(range.getBegin());
  if (place.isInvalid()) return;
  llvm::StringRef file = place.getFilename();
  if (const size_t cut = file.rfind("/include/"); cut != llvm::StringRef::npos) file = file.substr(cut + 9);
  answer.where = file.str() + ":" + std::to_string(place.getLine());
}

void describe(NamedDecl* decl, CompilerInstance& instance, const NameTable& names, protocol::Inspection& answer) {
  auto& context = instance.getASTContext();
  const PrintingPolicy policy = policy_of(instance);
  answer.found = true;
  if (auto* shadow = llvm::dyn_cast<UsingShadowDecl>(decl)) decl = shadow->getTargetDecl();
  if (const auto* value = llvm::dyn_cast<ValueDecl>(decl)) answer.type = value->getType().getAsString(policy);
  if (const auto* type = llvm::dyn_cast<TypeDecl>(decl); type && answer.type.empty())
    answer.type = context.getTypeDeclType(type).getAsString(policy);
  llvm::raw_string_ostream stream(answer.declaration);
  // A class is shown with its members, everything else in one line.
  PrintingPolicy shown = policy;
  if (const auto* record = llvm::dyn_cast<CXXRecordDecl>(decl); record && record->isThisDeclarationADefinition())
    shown.TerseOutput = false;
  decl->print(stream, shown);
  if (const auto* comment = context.getRawCommentForAnyRedecl(decl))
    answer.comment = comment->getFormattedText(context.getSourceManager(), instance.getDiagnostics());
  if (const auto* definition = names.of(decl)) answer.cell = definition->number;
  describe_source(decl, instance, answer);
}

}  // namespace

protocol::Inspection inspect_in(CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                const protocol::Inspect& request) {
  protocol::Inspection answer;
  // The name of a type, a template or a namespace, qualified or not, is no expression.
  const size_t last = request.expression.rfind("::");
  const auto found = last == std::string::npos
                         ? names.lookup("", request.expression)
                         : names.lookup(request.expression.substr(0, last), request.expression.substr(last + 2));
  if (!found.empty()) {
    describe(found.front(), instance, names, answer);
    return answer;
  }
  Expr* expression = parser.read_expression(request.expression);
  if (!expression) return answer;
  expression = expression->IgnoreParenImpCasts();
  NamedDecl* decl = nullptr;
  if (const auto* reference = llvm::dyn_cast<DeclRefExpr>(expression))
    decl = const_cast<ValueDecl*>(reference->getDecl());
  if (const auto* member = llvm::dyn_cast<MemberExpr>(expression)) decl = member->getMemberDecl();
  if (decl) {
    describe(decl, instance, names, answer);
    return answer;
  }
  answer.found = true;
  answer.type = expression->getType().getAsString(policy_of(instance));
  return answer;
}

}  // namespace lockstep::compiler
