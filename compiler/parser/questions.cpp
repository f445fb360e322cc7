#include "compiler/parser/questions.h"

#include <clang/Sema/CodeCompleteConsumer.h>
#include <clang/Sema/SemaCodeCompletion.h>

#include <algorithm>

namespace lockstep::compiler {

using namespace clang;

namespace {

constexpr size_t kMostCompletions = 2000;
constexpr unsigned kMostSignatures = 40;

/// How near a name is to what people mean, nearest first.
enum class Nearness { of_cells, of_session, of_libraries, keyword, c_library, macro, reserved };

bool is_of_session(llvm::StringRef name) {
  static const char* const kNames[] = {"arg",     "ddp",        "device",    "dist",      "get",  "gpu_id",
                                       "inspect", "local_rank", "node_rank", "progress",  "rank", "set_seed",
                                       "show",    "std",        "torch",     "world_size"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

class CompletionCollector : public CodeCompleteConsumer {
 public:
  CompletionCollector(Preprocessor& preprocessor, const NameTable& names, bool signatures_only)
      : CodeCompleteConsumer(options()),
        allocator_(std::make_shared<GlobalCodeCompletionAllocator>()),
        unit_(allocator_),
        preprocessor_(preprocessor),
        names_(names),
        signatures_only_(signatures_only) {}

  void ProcessCodeCompleteResults(Sema& sema, CodeCompletionContext context, CodeCompletionResult* results,
                                  unsigned count) override {
    if (signatures_only_) return;
    const std::string prefix = preprocessor_.getCodeCompletionFilter().str();
    for (unsigned i = 0; i < count; ++i) {
      const auto& result = results[i];
      if (result.Availability == CXAvailability_NotAvailable || result.Availability == CXAvailability_NotAccessible)
        continue;
      const Nearness nearness = nearness_of(result);
      // Where nothing is typed yet, names that nobody meant would hide the others.
      if (prefix.empty() && nearness >= Nearness::c_library) continue;
      const auto* text = const_cast<CodeCompletionResult&>(result).CreateCodeCompletionString(
          sema, context, *allocator_, unit_, /*IncludeBriefComments=*/false);
      if (!text || !text->getTypedText()) continue;
      const std::string typed = text->getTypedText();
      if (!typed.starts_with(prefix) || typed.starts_with("__") || typed.starts_with("operator")) continue;
      if (typed.starts_with("~") && prefix.empty()) continue;
      const Nearness near = typed.starts_with("_") ? Nearness::reserved : nearness;
      Found one{near, near <= Nearness::of_session ? result.Priority : 0, {typed, kind_of(result), ""}};
      for (const auto& chunk : *text) {
        if (chunk.Kind == CodeCompletionString::CK_ResultType)
          one.completion.detail = std::string(chunk.Text) + " " + one.completion.detail;
        else if (chunk.Kind != CodeCompletionString::CK_Optional && chunk.Text)
          one.completion.detail += chunk.Text;
      }
      if (one.completion.detail == typed) one.completion.detail.clear();
      found_.push_back(std::move(one));
    }
  }

  void ProcessOverloadCandidates(Sema& sema, unsigned argument, OverloadCandidate* candidates, unsigned count,
                                 SourceLocation, bool braced) override {
    signatures.clear();  // of the innermost call
    for (unsigned i = 0; i < count && signatures.size() < kMostSignatures; ++i) {
      const auto* text = candidates[i].CreateSignatureString(argument, sema, *allocator_, unit_,
                                                             /*IncludeBriefComments=*/false, braced);
      if (!text) continue;
      protocol::Signature signature;
      append(*text, signature);
      const bool is_known = std::any_of(signatures.begin(), signatures.end(),
                                        [&](const auto& each) { return each.label == signature.label; });
      if (!is_known) signatures.push_back(std::move(signature));
    }
  }

  CodeCompletionAllocator& getAllocator() override { return *allocator_; }
  CodeCompletionTUInfo& getCodeCompletionTUInfo() override { return unit_; }

  std::vector<protocol::Completion> completions() {
    const auto lower = [](const std::string& text) { return llvm::StringRef(text).lower(); };
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) {
      return std::tuple(a.nearness, a.priority, lower(a.completion.text), a.completion.text, a.completion.detail) <
             std::tuple(b.nearness, b.priority, lower(b.completion.text), b.completion.text, b.completion.detail);
    });
    std::vector<protocol::Completion> result;
    for (Found& each : found_)
      if (result.size() < kMostCompletions) result.push_back(std::move(each.completion));
    return result;
  }

  std::vector<protocol::Signature> signatures;

 private:
  struct Found {
    Nearness nearness;
    unsigned priority;
    protocol::Completion completion;
  };

  static CodeCompleteOptions options() {
    CodeCompleteOptions options;
    options.IncludeMacros = 1;
    options.IncludeCodePatterns = 0;
    options.IncludeGlobals = 1;
    options.IncludeNamespaceLevelDecls = 1;
    options.LoadExternal = 1;
    return options;
  }

  static void append(const CodeCompletionString& text, protocol::Signature& signature) {
    for (const auto& chunk : text) {
      if (chunk.Kind == CodeCompletionString::CK_Optional) {
        append(*chunk.Optional, signature);
        continue;
      }
      if (!chunk.Text || chunk.Kind == CodeCompletionString::CK_Informative) continue;
      const auto begin = static_cast<int64_t>(signature.label.size());
      signature.label += chunk.Text;
      const auto end = static_cast<int64_t>(signature.label.size());
      if (chunk.Kind == CodeCompletionString::CK_ResultType) signature.label += ' ';
      if (chunk.Kind == CodeCompletionString::CK_CurrentParameter)
        signature.active = static_cast<int64_t>(signature.parameters.size());
      if (chunk.Kind == CodeCompletionString::CK_CurrentParameter || chunk.Kind == CodeCompletionString::CK_Placeholder)
        signature.parameters.emplace_back(begin, end);
    }
  }

  Nearness nearness_of(const CodeCompletionResult& result) const {
    if (result.Kind == CodeCompletionResult::RK_Keyword) return Nearness::keyword;
    if (result.Kind == CodeCompletionResult::RK_Macro)
      return result.Macro && names_.find(result.Macro->getName().str()).empty() ? Nearness::macro : Nearness::of_cells;
    const NamedDecl* decl = result.Declaration;
    if (!decl) return Nearness::of_libraries;
    if (const auto* shadow = llvm::dyn_cast<UsingShadowDecl>(decl)) decl = shadow->getTargetDecl();
    const DeclContext* context = decl->getDeclContext();
    if (names_.of(decl) || decl->isCXXClassMember() || context->isFunctionOrMethod()) return Nearness::of_cells;
    if (decl->getIdentifier() && is_of_session(decl->getName())) return Nearness::of_session;
    if (context->getRedeclContext()->isTranslationUnit() && !llvm::isa<NamespaceDecl, NamespaceAliasDecl>(decl))
      return Nearness::c_library;
    return Nearness::of_libraries;
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
  const NameTable& names_;
  const bool signatures_only_;
  std::vector<Found> found_;
};

}  // namespace

protocol::Completions complete_in(CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                  const protocol::Complete& request) {
  const auto offset =
      static_cast<size_t>(std::clamp<int64_t>(request.offset, 0, static_cast<int64_t>(request.text.size())));
  protocol::Completions answer;
  answer.end = static_cast<int64_t>(offset);
  const std::string before = request.text.substr(0, offset);
  const auto line = static_cast<unsigned>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t last_break = before.rfind('\n');
  const auto column = static_cast<unsigned>(offset - (last_break == std::string::npos ? 0 : last_break + 1)) + 1;

  auto& preprocessor = instance.getPreprocessor();
  CompletionCollector collector(preprocessor, names, request.signatures_only);
  instance.getSema().CodeCompletion().CodeCompleter = &collector;
  ReadPlan plan;
  plan.ranks = request.ranks;
  parser.read(parser.lex_for_completion(request.text, line, column), 0, 0, "__cell_completion", plan);
  instance.getSema().CodeCompletion().CodeCompleter = nullptr;

  answer.begin = answer.end - static_cast<int64_t>(preprocessor.getCodeCompletionFilter().size());
  answer.completions = collector.completions();
  answer.signatures = std::move(collector.signatures);
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

/// The text of the definition, and where a header has it.
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
