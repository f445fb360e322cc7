#include "compiler/parser/completion.h"

#include <clang/AST/DeclLookups.h>
#include <clang/Sema/CodeCompleteConsumer.h>
#include <clang/Sema/SemaCodeCompletion.h>

#include <algorithm>
#include <functional>
#include <tuple>

namespace lockstep::compiler {

using namespace clang;

namespace {

constexpr size_t kMostCompletions = 2000;
constexpr unsigned kMostSignatures = 40;

bool is_of_session(llvm::StringRef name) {
  static const char* const kNames[] = {"arg",      "ddp",        "device",    "dist",       "get",       "gpu_id",
                                       "inspect",  "local_rank", "node_rank", "on_preempt", "progress",  "rank",
                                       "set_seed", "show",       "std",       "torch",      "world_size"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Whether it is a constructor, one of a base class that a using-declaration takes over, or that declaration.
bool is_constructor(const NamedDecl* decl) {
  return decl->getDeclName().getNameKind() == DeclarationName::CXXConstructorName;
}

/// Returns what a result is about: the class of a constructor, the target of a using-declaration, or what it declares.
const NamedDecl* subject_of(const CodeCompletionResult& result) {
  const NamedDecl* decl = result.Declaration;
  if (decl && is_constructor(decl)) return llvm::cast<CXXRecordDecl>(decl->getDeclContext());
  if (const auto* shadow = llvm::dyn_cast_or_null<UsingShadowDecl>(decl)) decl = shadow->getTargetDecl();
  return decl;
}

/// Returns "torch::nn", or nothing for a namespace that no list has: unnamed, inline, reserved, or in one of these.
std::optional<std::string> path_of(const DeclContext* context) {
  std::string path;
  for (context = context->getRedeclContext(); !context->isTranslationUnit();
       context = context->getParent()->getRedeclContext()) {
    const auto* space = llvm::dyn_cast<NamespaceDecl>(context);
    if (!space || space->isAnonymousNamespace() || space->isInline() || space->getName().starts_with("_")) return {};
    path = space->getName().str() + (path.empty() ? "" : "::" + path);
  }
  return path;
}

/// Whether something of the kind `kind` (protocol::Completion) may stand in the context.
bool may_stand(CodeCompletionContext::Kind context, const std::string& kind) {
  switch (context) {
    case CodeCompletionContext::CCC_TopLevel:
    case CodeCompletionContext::CCC_TopLevelOrExpression:
    case CodeCompletionContext::CCC_ClassStructUnion:
    case CodeCompletionContext::CCC_Statement:
    case CodeCompletionContext::CCC_Expression:
    case CodeCompletionContext::CCC_ParenthesizedExpression:
    case CodeCompletionContext::CCC_Symbol:
    case CodeCompletionContext::CCC_SymbolOrNewName:
    case CodeCompletionContext::CCC_Recovery:
      return true;
    case CodeCompletionContext::CCC_Type:
      return kind == "type" || kind == "namespace" || kind == "macro";
    case CodeCompletionContext::CCC_EnumTag:
    case CodeCompletionContext::CCC_UnionTag:
    case CodeCompletionContext::CCC_ClassOrStructTag:
      return kind == "type" || kind == "namespace";
    case CodeCompletionContext::CCC_Namespace:
      return kind == "namespace";
    case CodeCompletionContext::CCC_OtherWithMacros:
    case CodeCompletionContext::CCC_MacroName:
    case CodeCompletionContext::CCC_MacroNameUse:
    case CodeCompletionContext::CCC_PreprocessorExpression:
      return kind == "macro";
    default:
      return false;
  }
}

/// Turns clang's results into completions.
class CompletionCollector : public CodeCompleteConsumer {
 public:
  CompletionCollector(Preprocessor& preprocessor, const NameTable& names, bool load)
      : CodeCompleteConsumer(options(load)),
        allocator_(std::make_shared<GlobalCodeCompletionAllocator>()),
        unit_(allocator_),
        preprocessor_(preprocessor),
        names_(names) {}

  CodeCompletionAllocator& getAllocator() override { return *allocator_; }
  CodeCompletionTUInfo& getCodeCompletionTUInfo() override { return unit_; }

  void ProcessCodeCompleteResults(Sema& sema, CodeCompletionContext context, CodeCompletionResult* results,
                                  unsigned count) override {
    const std::string prefix = preprocessor_.getCodeCompletionFilter().str();
    for (unsigned i = 0; i < count; ++i) take(sema, context, results[i], prefix);
  }

  /// Adds the result if it begins with `prefix` and people may mean it.
  void take(Sema& sema, const CodeCompletionContext& context, CodeCompletionResult& result, const std::string& prefix) {
    if (result.Availability == CXAvailability_NotAvailable || result.Availability == CXAvailability_NotAccessible)
      return;
    const Nearness nearness = nearness_of(result);
    if (!is_wanted(nearness, prefix)) return;
    // Clang takes most of its time for the text, and most names do not begin with the prefix.
    if (result.Kind == CodeCompletionResult::RK_Declaration && result.Declaration->getDeclName().isIdentifier() &&
        !result.Declaration->getName().starts_with(prefix))
      return;
    const auto* text =
        result.CreateCodeCompletionString(sema, context, *allocator_, unit_, /*IncludeBriefComments=*/false);
    if (!text || !text->getTypedText()) return;
    const std::string typed = text->getTypedText();
    if (!typed.starts_with(prefix) || typed.starts_with("__") || typed.starts_with("operator")) return;
    if (typed.starts_with("~") && prefix.empty()) return;
    const Nearness near = typed.starts_with("_") ? Nearness::reserved : nearness;
    if (!is_wanted(near, prefix)) return;
    NearCompletion one{near, near <= Nearness::of_session ? result.Priority : 0, {typed, kind_of(result), ""}};
    for (const auto& chunk : *text) {
      if (chunk.Kind == CodeCompletionString::CK_ResultType)
        one.completion.detail = std::string(chunk.Text) + " " + one.completion.detail;
      else if (chunk.Kind != CodeCompletionString::CK_Optional && chunk.Text)
        one.completion.detail += chunk.Text;
    }
    if (one.completion.detail == typed) one.completion.detail.clear();
    found.push_back(std::move(one));
  }

  std::vector<NearCompletion> found;

 protected:
  /// Where nothing is typed yet, names that nobody meant would hide the others.
  virtual bool is_wanted(Nearness nearness, const std::string& prefix) const {
    return !prefix.empty() || nearness < Nearness::c_library;
  }

  const NameTable& names() const { return names_; }
  Preprocessor& preprocessor() { return preprocessor_; }

 private:
  static CodeCompleteOptions options(bool load) {
    CodeCompleteOptions options;
    options.IncludeMacros = 1;
    options.IncludeCodePatterns = 0;
    options.IncludeGlobals = 1;
    options.IncludeNamespaceLevelDecls = load;  // what stands after NAMESPACE::
    options.LoadExternal = load;
    return options;
  }

  Nearness nearness_of(const CodeCompletionResult& result) const {
    if (result.Kind == CodeCompletionResult::RK_Keyword) return Nearness::keyword;
    if (result.Kind == CodeCompletionResult::RK_Macro)
      return result.Macro && names_.find(result.Macro->getName().str()).empty() ? Nearness::macro : Nearness::of_cells;
    const NamedDecl* decl = subject_of(result);
    if (!decl) return Nearness::of_libraries;
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
    if (is_constructor(decl)) return "type";
    if (const auto* shadow = llvm::dyn_cast<UsingShadowDecl>(decl)) decl = shadow->getTargetDecl();
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
};

/// Collects every name, those of the header too.
class HeaderCollector : public CompletionCollector {
 public:
  HeaderCollector(Preprocessor& preprocessor, const NameTable& names)
      : CompletionCollector(preprocessor, names, /*load=*/true) {}

 private:
  bool is_wanted(Nearness, const std::string&) const override { return true; }
};

/// Collects what clang finds in this process, the header's names from their list, and signatures.
class Completer : public CompletionCollector {
 public:
  Completer(Preprocessor& preprocessor, const NameTable& names, const LibraryNames* library, const RankSet& ranks,
            bool signatures_only)
      : CompletionCollector(preprocessor, names, /*load=*/!library),
        library_(library),
        ranks_(ranks),
        signatures_only_(signatures_only) {}

  void ProcessCodeCompleteResults(Sema& sema, CodeCompletionContext context, CodeCompletionResult* results,
                                  unsigned count) override {
    if (signatures_only_) return;
    const std::string prefix = preprocessor().getCodeCompletionFilter().str();
    const auto spaces = spaces_of(sema, context);
    if (library_ && spaces.empty() && loads_namespace(sema, context)) return;
    for (unsigned i = 0; i < count; ++i)
      if (!is_listed(results[i], spaces)) take(sema, context, results[i], prefix);
    if (!spaces.empty()) take_additions(sema, context, prefix);
    std::set<std::string> replaced;
    for (const NearCompletion& each : found)
      if (each.nearness == Nearness::of_cells) replaced.insert(each.completion.text);
    for (const std::string& space : spaces)
      library_->each(space, prefix, [&](const NearCompletion& name) {
        const auto& [text, kind, detail] = name.completion;
        if (!is_wanted(name.nearness, prefix) || !may_stand(context.getKind(), kind) || replaced.contains(text)) return;
        if (kind == "macro" && (context.getCXXScopeSpecifier() || !is_macro(text))) return;
        found.push_back(name);
      });
  }

  void ProcessOverloadCandidates(Sema& sema, unsigned argument, OverloadCandidate* candidates, unsigned count,
                                 SourceLocation, bool braced) override {
    signatures.clear();  // of the innermost call
    for (unsigned i = 0; i < count && signatures.size() < kMostSignatures; ++i) {
      const auto* text = candidates[i].CreateSignatureString(argument, sema, getAllocator(), getCodeCompletionTUInfo(),
                                                             /*IncludeBriefComments=*/false, braced);
      if (!text) continue;
      protocol::Signature signature;
      append(*text, signature);
      const bool is_known = std::any_of(signatures.begin(), signatures.end(),
                                        [&](const auto& each) { return each.label == signature.label; });
      if (!is_known) signatures.push_back(std::move(signature));
    }
  }

  /// Returns what was found, best first.
  std::vector<protocol::Completion> completions() const {
    struct Ranked {
      std::string lower;
      const NearCompletion* name;
      auto key() const {
        const auto& [text, kind, detail] = name->completion;
        return std::tie(name->nearness, name->priority, lower, text, detail, kind);
      }
    };
    std::vector<Ranked> ranked;
    ranked.reserve(found.size());
    for (const NearCompletion& each : found) ranked.push_back({llvm::StringRef(each.completion.text).lower(), &each});
    std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.key() < b.key(); });
    const auto drop = [&](const auto& is_same) {
      ranked.erase(std::unique(ranked.begin(), ranked.end(), is_same), ranked.end());
    };
    drop([](const Ranked& a, const Ranked& b) { return a.key() == b.key(); });
    if (ranked.size() > kMostCompletions)  // more names rather than more overloads
      drop([](const Ranked& a, const Ranked& b) { return a.name->completion.text == b.name->completion.text; });
    std::vector<protocol::Completion> result;
    for (const Ranked& each : ranked)
      if (result.size() < kMostCompletions) result.push_back(each.name->completion);
    return result;
  }

  std::vector<protocol::Signature> signatures;

 private:
  /// Returns the namespaces whose names the list has and that may be meant here.
  std::set<std::string> spaces_of(Sema& sema, CodeCompletionContext& context) const {
    std::set<std::string> spaces;
    if (!library_) return spaces;
    const auto add = [&](const DeclContext* space) {
      const auto path = path_of(space);
      if (path && library_->has(*path)) spaces.insert(*path);
    };
    if (const auto scope = context.getCXXScopeSpecifier()) {
      const DeclContext* space = sema.computeDeclContext(**scope);
      if (space && space->isFileContext()) add(space);
      return spaces;
    }
    for (const DeclContext* space : context.getVisitedContexts())
      if (space->isFileContext()) add(space);
    if (spaces.empty()) {  // macros and namespaces are looked for without visiting one
      if (may_stand(context.getKind(), "macro") || may_stand(context.getKind(), "namespace")) spaces.insert("");
    } else {
      for (const UsedNamespace& used : names().used_namespaces())
        if (ranks_.empty() || used.ranks.contains(*ranks_.begin())) add(used.space);
    }
    return spaces;
  }

  /// Reads the namespace from the header after `NAMESPACE::` where the list does not have it. Returns false elsewhere.
  bool loads_namespace(Sema& sema, CodeCompletionContext& context) {
    const auto scope = context.getCXXScopeSpecifier();
    const DeclContext* space = scope ? sema.computeDeclContext(**scope) : nullptr;
    if (!space || !space->isFileContext()) return false;
    CompletionCollector loading(preprocessor(), names(), /*load=*/true);
    auto& completion = sema.CodeCompletion();
    completion.CodeCompleter = &loading;
    CXXScopeSpec copy(**scope);
    completion.CodeCompleteQualifiedId(sema.getCurScope(), copy, /*EnteringContext=*/false,
                                       /*IsUsingDeclaration=*/false, QualType(), context.getPreferredType());
    completion.CodeCompleter = this;
    found = std::move(loading.found);
    return true;
  }

  /// Takes what cells and the user's headers have added to a namespace of the list, after `NAMESPACE::`.
  void take_additions(Sema& sema, CodeCompletionContext& context, const std::string& prefix) {
    const auto scope = context.getCXXScopeSpecifier();
    DeclContext* space = scope ? sema.computeDeclContext(**scope) : nullptr;
    if (!space) return;
    std::vector<NamedDecl*> added;  // first all, since making texts reads more of the header
    for (const auto result : space->getPrimaryContext()->noload_lookups(/*PreserveInternalState=*/false))
      for (NamedDecl* decl : result)
        if (!decl->isFromASTFile() && decl->getIdentifier()) added.push_back(decl);
    for (NamedDecl* decl : added) {
      CodeCompletionResult result(decl, CCP_Declaration);
      take(sema, context, result, prefix);
    }
  }

  /// Whether the list has this result of clang.
  bool is_listed(const CodeCompletionResult& result, const std::set<std::string>& spaces) const {
    if (spaces.empty()) return false;
    if (result.Kind == CodeCompletionResult::RK_Macro) {
      const auto* macro = result.Macro ? preprocessor_of().getMacroInfo(result.Macro) : nullptr;
      return macro && spaces.contains("") &&
             preprocessor_of().getSourceManager().isLoadedSourceLocation(macro->getDefinitionLoc());
    }
    const NamedDecl* decl = subject_of(result);
    if (!decl || !decl->isFromASTFile() || !result.Declaration->isFromASTFile()) return false;
    const DeclContext* context = result.Declaration->getDeclContext();
    if (is_constructor(result.Declaration)) context = decl->getDeclContext();
    if (!context->getRedeclContext()->isFileContext()) return false;
    const auto path = path_of(context);
    return path && spaces.contains(*path);
  }

  Preprocessor& preprocessor_of() const { return const_cast<Completer*>(this)->preprocessor(); }

  /// A cell may have taken the header's macro away.
  bool is_macro(const std::string& name) { return preprocessor().isMacroDefined(name); }

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

  const LibraryNames* library_;
  const RankSet& ranks_;
  const bool signatures_only_;
};

}  // namespace

protocol::Completions complete_in(CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                  const LibraryNames* library, const protocol::Complete& request) {
  const auto offset =
      static_cast<size_t>(std::clamp<int64_t>(request.offset, 0, static_cast<int64_t>(request.text.size())));
  protocol::Completions answer;
  answer.end = static_cast<int64_t>(offset);
  const std::string before = request.text.substr(0, offset);
  const auto line = static_cast<unsigned>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t last_break = before.rfind('\n');
  const auto column = static_cast<unsigned>(offset - (last_break == std::string::npos ? 0 : last_break + 1)) + 1;

  auto& preprocessor = instance.getPreprocessor();
  // A text that is being typed has names that nothing declares. To look for similar ones takes 50 ms.
  instance.getLangOpts().SpellChecking = false;
  Completer completer(preprocessor, names, library, request.ranks, request.signatures_only);
  instance.getSema().CodeCompletion().CodeCompleter = &completer;
  ReadPlan plan;
  plan.ranks = request.ranks;
  parser.read(parser.lex_for_completion(request.text, line, column), 0, 0, "__cell_completion", plan);
  instance.getSema().CodeCompletion().CodeCompleter = nullptr;

  answer.begin = answer.end - static_cast<int64_t>(preprocessor.getCodeCompletionFilter().size());
  answer.completions = completer.completions();
  answer.signatures = std::move(completer.signatures);
  return answer;
}

std::string list_library_names(CompilerInstance& instance, const NameTable& names) {
  auto& sema = instance.getSema();
  auto& context = instance.getASTContext();
  auto& preprocessor = instance.getPreprocessor();
  std::map<std::string, std::vector<NearCompletion>> namespaces;
  const std::function<void(DeclContext*)> list = [&](DeclContext* space) {
    const auto path = path_of(space);
    if (!path || namespaces.contains(*path)) return;
    HeaderCollector collector(preprocessor, names);
    CXXScopeSpec scope;
    if (auto* named = llvm::dyn_cast<NamespaceDecl>(space))
      scope.MakeTrivial(context, NestedNameSpecifier::Create(context, nullptr, named), SourceRange());
    else
      scope.MakeGlobal(context, SourceLocation());
    sema.CodeCompletion().CodeCompleter = &collector;
    sema.CodeCompletion().CodeCompleteQualifiedId(sema.TUScope, scope, /*EnteringContext=*/false,
                                                  /*IsUsingDeclaration=*/false, QualType(), QualType());
    const auto key = [](const NearCompletion& each) {
      return std::tie(each.completion.text, each.completion.kind, each.nearness, each.completion.detail);
    };
    std::sort(collector.found.begin(), collector.found.end(),
              [&](const NearCompletion& a, const NearCompletion& b) { return key(a) < key(b); });
    const auto last = std::unique(collector.found.begin(), collector.found.end(),
                                  [&](const NearCompletion& a, const NearCompletion& b) { return key(a) == key(b); });
    collector.found.erase(last, collector.found.end());
    namespaces[*path] = std::move(collector.found);
    std::vector<DeclContext*> inner;
    for (const auto result : space->getPrimaryContext()->lookups())
      for (NamedDecl* decl : result)
        if (auto* named = llvm::dyn_cast<NamespaceDecl>(decl); named && named->getParent()->Equals(space))
          inner.push_back(named->getPrimaryContext());
    for (DeclContext* each : inner) list(each);
  };
  list(context.getTranslationUnitDecl());

  HeaderCollector macros(preprocessor, names);
  const CodeCompletionContext where(CodeCompletionContext::CCC_OtherWithMacros);
  for (const auto& [name, state] : preprocessor.macros()) {
    const auto* macro = preprocessor.getMacroDefinition(name).getMacroInfo();
    if (!macro || macro->isUsedForHeaderGuard()) continue;
    CodeCompletionResult result(name, macro, CCP_Macro);
    macros.take(sema, where, result, /*prefix=*/"");
  }
  auto& global = namespaces[""];
  global.insert(global.end(), macros.found.begin(), macros.found.end());
  sema.CodeCompletion().CodeCompleter = nullptr;
  return library_names_text(namespaces);
}

}  // namespace lockstep::compiler
