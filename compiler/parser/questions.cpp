#include "compiler/parser/questions.h"

#include <clang/Sema/CodeCompleteConsumer.h>
#include <clang/Sema/SemaCodeCompletion.h>

#include <algorithm>

namespace lockstep::compiler {

using namespace clang;

namespace {

constexpr size_t kMostCompletions = 2000;

class CompletionCollector : public CodeCompleteConsumer {
 public:
  explicit CompletionCollector(Preprocessor& preprocessor)
      : CodeCompleteConsumer(options()),
        allocator_(std::make_shared<GlobalCodeCompletionAllocator>()),
        unit_(allocator_),
        preprocessor_(preprocessor) {}

  void ProcessCodeCompleteResults(Sema& sema, CodeCompletionContext context, CodeCompletionResult* results,
                                  unsigned count) override {
    const std::string prefix = preprocessor_.getCodeCompletionFilter().str();
    for (unsigned i = 0; i < count && found.size() < kMostCompletions; ++i) {
      const auto& result = results[i];
      if (result.Availability == CXAvailability_NotAvailable || result.Availability == CXAvailability_NotAccessible)
        continue;
      const auto* text = const_cast<CodeCompletionResult&>(result).CreateCodeCompletionString(
          sema, context, *allocator_, unit_, /*IncludeBriefComments=*/false);
      if (!text || !text->getTypedText()) continue;
      const std::string typed = text->getTypedText();
      if (!typed.starts_with(prefix) || typed.starts_with("__") || typed.starts_with("operator")) continue;
      protocol::Completion completion{typed, kind_of(result), ""};
      for (const auto& chunk : *text) {
        if (chunk.Kind == CodeCompletionString::CK_ResultType)
          completion.detail = std::string(chunk.Text) + " " + completion.detail;
        else if (chunk.Kind != CodeCompletionString::CK_Optional && chunk.Text)
          completion.detail += chunk.Text;
      }
      if (completion.detail == typed) completion.detail.clear();
      found.push_back(std::move(completion));
    }
  }
  CodeCompletionAllocator& getAllocator() override { return *allocator_; }
  CodeCompletionTUInfo& getCodeCompletionTUInfo() override { return unit_; }

  std::vector<protocol::Completion> found;

 private:
  static CodeCompleteOptions options() {
    CodeCompleteOptions options;
    options.IncludeMacros = 1;
    options.IncludeCodePatterns = 0;
    options.IncludeGlobals = 1;
    options.IncludeNamespaceLevelDecls = 1;
    options.LoadExternal = 1;
    return options;
  }

  static std::string kind_of(const CodeCompletionResult& result) {
    if (result.Kind == CodeCompletionResult::RK_Keyword) return "keyword";
    if (result.Kind == CodeCompletionResult::RK_Macro) return "macro";
    const NamedDecl* decl = result.Declaration;
    if (!decl) return "variable";
    if (const auto* shadow = llvm::dyn_cast<UsingShadowDecl>(decl)) decl = shadow->getTargetDecl();
    if (llvm::isa<CXXConstructorDecl>(decl)) return "type";
    if (decl->isCXXClassMember()) return "member";
    if (decl->getAsFunction()) return "function";
    if (llvm::isa<NamespaceDecl, NamespaceAliasDecl>(decl)) return "namespace";
    if (llvm::isa<TypeDecl, ClassTemplateDecl, TypeAliasTemplateDecl, ConceptDecl>(decl)) return "type";
    return "variable";
  }

  std::shared_ptr<GlobalCodeCompletionAllocator> allocator_;
  CodeCompletionTUInfo unit_;
  Preprocessor& preprocessor_;
};

}  // namespace

protocol::Completions complete_in(CompilerInstance& instance, CellParser& parser, const protocol::Complete& request) {
  const auto offset =
      static_cast<size_t>(std::clamp<int64_t>(request.offset, 0, static_cast<int64_t>(request.text.size())));
  protocol::Completions answer;
  answer.end = static_cast<int64_t>(offset);
  const std::string before = request.text.substr(0, offset);
  const auto line = static_cast<unsigned>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t last_break = before.rfind('\n');
  const auto column = static_cast<unsigned>(offset - (last_break == std::string::npos ? 0 : last_break + 1)) + 1;

  auto& preprocessor = instance.getPreprocessor();
  CompletionCollector collector(preprocessor);
  instance.getSema().CodeCompletion().CodeCompleter = &collector;
  ReadPlan plan;
  plan.ranks = request.ranks;
  parser.read(parser.lex_for_completion(request.text, line, column), 0, 0, "__cell_completion", plan);
  instance.getSema().CodeCompletion().CodeCompleter = nullptr;

  answer.begin = answer.end - static_cast<int64_t>(preprocessor.getCodeCompletionFilter().size());
  answer.completions = std::move(collector.found);
  const auto before_in_order = [](const auto& a, const auto& b) {
    return std::tie(a.text, a.detail) < std::tie(b.text, b.detail);
  };
  std::sort(answer.completions.begin(), answer.completions.end(), before_in_order);
  return answer;
}

namespace {

PrintingPolicy policy_of(const CompilerInstance& instance) {
  PrintingPolicy policy(instance.getLangOpts());
  policy.TerseOutput = true;
  policy.PolishForDeclaration = true;
  policy.SuppressUnwrittenScope = true;
  return policy;
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
}

}  // namespace

protocol::Inspection inspect_in(CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                const protocol::Inspect& request) {
  protocol::Inspection answer;
  // A name, qualified or not: types, templates and namespaces are not expressions.
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
