#include "compiler/state/cell_compiler.h"

#include <chrono>

#include "compiler/front_end/front_end.h"
#include "compiler/front_end/user_headers.h"
#include "compiler/names/kept_values.h"
#include "compiler/names/library_names.h"
#include "compiler/objects/code_generation.h"
#include "compiler/objects/link.h"
#include "compiler/parser/completion.h"
#include "compiler/parser/declarations.h"
#include "compiler/parser/openmp.h"
#include "compiler/parser/poll_insertion.h"
#include "compiler/parser/questions.h"
#include "compiler/state/practice.h"
#include "compiler/tokens/file_pragmas.h"
#include "protocol/error.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

int64_t number_of(const protocol::Compile& request) { return request.number != 0 ? request.number : request.cell; }

/// Whether KeptValues::declarations() has declared it.
bool is_kept_value(const NamedDecl* decl) {
  const auto* variable = llvm::dyn_cast<VarDecl>(decl);
  const auto* value = variable ? variable->getInit() : nullptr;
  const auto* call = value ? llvm::dyn_cast<CallExpr>(value->IgnoreImplicit()) : nullptr;
  const auto* function = call ? call->getDirectCallee() : nullptr;
  return function && function->getName() == "__lockstep_kept_value";
}

}  // namespace

struct CellCompiler::Impl {
  Impl(const Options& options, const std::string& header)
      : options(options),
        diagnostics(options.cells_dir(), options.include_root + "/worker/"),
        versions(std::make_shared<FileVersions>()),
        instance(read_header(options, header, &diagnostics, versions)),
        openmp(instance->getLangOpts()) {
    instance->getLangOpts().Freestanding = true;  // main is a function like others
    auto owned_consumer = std::make_unique<EventConsumer>();
    consumer = owned_consumer.get();
    instance->setASTConsumer(std::move(owned_consumer));
    instance->createSema(TU_Incremental, nullptr);
    auto& sema = instance->getSema();
    names = std::make_unique<NameTable>(sema);
    kept = std::make_unique<KeptValues>(sema);
    headers = UserHeaders::watch(*instance, versions, options.include_dirs);
    own = find_own_names(instance->getASTContext());
    openmp.while_the_parser_is_made(true);
    parser = std::make_unique<CellParser>(*instance, *consumer, *names, diagnostics, own);
    openmp.while_the_parser_is_made(false);
    resident = new ResidentSymbols(instance->getASTContext());
    auto* reader = instance->getASTContext().getExternalSource();
    resident->attach(sema);
    resident->last_resort = [this](LookupResult& result, Scope*) { return look_in_used_namespaces(result); };
    code = std::make_unique<CodeGeneration>(*instance, *resident);
    consumer->listener = [this](const Event& event) { code->add(event); };
    reader->StartTranslationUnit(consumer);
  }

  bool look_in_used_namespaces(LookupResult& result) {
    if (result.isForRedeclaration()) return false;
    bool found = false;
    switch (result.getLookupKind()) {
      case Sema::LookupNestedNameSpecifierName:
      case Sema::LookupNamespaceName:
        if (auto* space = names->hidden_namespace(result.getLookupName().getAsString(), view_rank)) {
          result.addDecl(space);
          found = true;
        }
        break;
      case Sema::LookupOrdinaryName:
      case Sema::LookupTagName:
      case Sema::LookupOperatorName:
        break;
      default:
        return false;
    }
    for (const auto& used : names->used_namespaces()) {
      if (used.ranks.contains(view_rank)) {
        LookupResult inner(instance->getSema(), result.getLookupNameInfo(), result.getLookupKind());
        inner.suppressDiagnostics();
        if (!instance->getSema().LookupQualifiedName(inner, used.space)) continue;
        found = true;
        for (auto it = inner.begin(); it != inner.end(); ++it) result.addDecl(*it, it.getAccess());
      }
    }
    const DeclarationName name = result.getLookupName();
    auto* value = result.getLookupKind() == Sema::LookupOrdinaryName && name.isIdentifier()
                      ? names->value_found_last(name.getAsString(), view_rank)
                      : nullptr;
    if (value && !(found && parser->is_called(name.getAsIdentifierInfo()))) {
      result.clear();
      result.addDecl(value);
      found = true;
    }
    if (found) result.resolveKind();
    return found;
  }

  std::string file_of(const protocol::Compile& request) const {
    return options.cells_dir() + "/cell_" + std::to_string(number_of(request)) + ".cpp";
  }

  /// A name that clang does not find may exist on other ranks: adds a note with these ranks and the cell.
  void explain_missing_names() {
    for (const auto& name : diagnostics.names_in_errors()) {
      if (const auto number = kept_number(name); number && names->find(name).empty())
        diagnostics.add(DiagnosticSeverity::note,
                        *number == 0 ? "'_' is the value that was shown last: no cell has shown one yet"
                                     : "'" + name + "' is the value that cell " + std::to_string(*number) +
                                           " has shown: there is none");
      const auto definitions = names->find(name);
      for (auto it = definitions.rbegin(); it != definitions.rend(); ++it) {
        const Definition& definition = **it;
        if (definition.forgotten || definition.ranks.empty()) continue;
        if (names->sees(definition, view_rank)) break;
        diagnostics.add(DiagnosticSeverity::note, "'" + name + "' is not defined on " + view_ranks.words() +
                                                      ": it was defined in cell " + std::to_string(definition.number) +
                                                      ", on " + definition.ranks.words());
        break;
      }
    }
  }

  /// Returns the tokens of the cell, after declarations of the kept values that it mentions.
  Tokens with_kept_values(Tokens tokens, const std::string& file) {
    const auto referred = referred_names(tokens, instance->getPreprocessor());
    const std::string text = kept->declarations(referred, tokens, *names, view_rank);
    if (text.empty()) return tokens;
    const SourceLocation first_place = diagnostics.first_place();
    Tokens declared = parser->lex(text, file);
    diagnostics.set_first_place(first_place);
    declared.pop_back();
    declared.insert(declared.end(), tokens.begin(), tokens.end());
    return declared;
  }

  protocol::CompiledObject compile_for(const protocol::Compile& request, const Attempt& attempt, const RankSet& ranks,
                                       size_t version, Tokens tokens, std::vector<std::string>& frames);

  Options options;
  CellDiagnostics diagnostics;
  std::shared_ptr<FileVersions> versions;
  std::unique_ptr<CompilerInstance> instance;
  OpenMp openmp;
  EventConsumer* consumer = nullptr;
  OwnNames own;
  UserHeaders* headers = nullptr;  // owned by the preprocessor
  std::unique_ptr<NameTable> names;
  std::unique_ptr<LibraryNames> library;  // nullptr: there is no list
  std::unique_ptr<KeptValues> kept;
  std::map<int64_t, int64_t> numbers;  // id of a cell → its number for people
  std::unique_ptr<CellParser> parser;
  ResidentSymbols* resident = nullptr;
  std::unique_ptr<CodeGeneration> code;
  std::vector<std::pair<RankSet, std::vector<std::string>>> pending_symbols;  // of the cell that is not settled yet
  int view_rank = 0;
  RankSet view_ranks;
  bool hid_something = false;  // the failed attempt had hidden earlier definitions
  bool only_statements = false;  // the object that was compiled last declares nothing
};

CellCompiler::CellCompiler(const Options& options, const std::string& header)
    : impl_(std::make_unique<Impl>(options, header)) {}

CellCompiler::~CellCompiler() = default;

void CellCompiler::add_prelude(const std::string& path) { impl_->resident->add_library(path); }

std::string CellCompiler::make_library_names() { return list_library_names(*impl_->instance, *impl_->names); }

void CellCompiler::add_library_names(const std::string& path) { impl_->library = LibraryNames::read(path); }

void CellCompiler::warm_up() { impl_->code->warm_up(); }

bool CellCompiler::practise() {
  auto& impl = *impl_;
  impl.diagnostics.start_cell();
  impl.instance->getDiagnostics().Reset(/*soft=*/true);
  impl.view_rank = 0;
  impl.names->show_view(0);
  impl.resident->start_cell({}, /*inline_bodies=*/false);
  const ReadCell read = impl.parser->read(impl.parser->lex(kPractice, impl.options.cells_dir() + "/practice.cpp"), 0, 0,
                                          "__practice", {});
  if (impl.diagnostics.failed()) return false;
  impl.code->generate(read, {}, "practice", "__practice", "lockstep_practice", {});
  return !impl.diagnostics.failed();
}

protocol::CompiledObject CellCompiler::Impl::compile_for(const protocol::Compile& request, const Attempt& attempt,
                                                         const RankSet& ranks, size_t version, Tokens tokens,
                                                         std::vector<std::string>& frames) {
  const std::string id = std::to_string(request.cell);
  const std::string tag = "__cell_" + id + (version == 0 ? "" : "_" + std::to_string(version + 1));
  view_rank = ranks.empty() ? 0 : *ranks.begin();
  view_ranks = ranks;
  names->show_view(view_rank);
  resident->start_cell(ranks, request.optimize > 0);
  ReadPlan plan{ranks, attempt.predict, attempt.capture_defaults, {}, attempt.captures};
  plan.showing = attempt.showing;
  for (const auto& [item, place] : attempt.clashes) plan.clashes.push_back({item, place});
  tokens = with_kept_values(std::move(tokens), file_of(request));
  ReadCell read = parser->read(std::move(tokens), request.cell, number_of(request), tag, plan);
  if (diagnostics.failed()) {
    hid_something |= !read.hidden.empty();
    return {};
  }
  only_statements = std::all_of(read.items.begin(), read.items.end(), [](const Item& item) { return item.statement; });
  insert_polls(read, instance->getSema(), own);
  CellDeclarations declared = declare(read, tag, diagnostics, instance->getSema());
  for (const VarDecl* variable : declared.variables) resident->add_variable(variable);

  protocol::CompiledObject object;
  object.ranks = ranks;
  object.name = "cell_" + id + (version == 0 ? "" : "." + std::to_string(version + 1)) + ".so";
  object.entry = "lockstep_cell_" + id + (version == 0 ? "" : "_" + std::to_string(version + 1));
  object.source = request.text;
  GeneratedObject made = code->generate(read, declared, "cell_" + std::to_string(number_of(request)), tag, object.entry,
                                        {request.optimize, request.debug});
  frames.push_back(link_shared(made.object));
  object.frame = static_cast<int64_t>(frames.size()) - 1;

  for (const auto& step : made.steps) object.steps.push_back({step.line, {}});
  const auto steps_up_to = [&](size_t item) {
    int64_t count = 0;
    for (size_t i = 0; i < made.steps.size(); ++i)
      if (made.steps[i].item == GeneratedStep::kNoItem || made.steps[i].item <= item)
        count = static_cast<int64_t>(i) + 1;
    return count;
  };
  for (const auto& name : declared.names) {
    Definition definition;
    definition.name = name.name;
    definition.kind = kept_number(name.name) && is_kept_value(name.decl) ? kKeptValue : name.kind;
    definition.decl = name.decl;
    definition.cell = request.cell;
    definition.number = number_of(request);
    definition.steps_needed = name.is_variable ? steps_up_to(name.item) : 0;
    definition.ranks = ranks;
    if (definition.steps_needed > 0)
      object.steps[static_cast<size_t>(definition.steps_needed) - 1].names.push_back(name.name);
    names->define(std::move(definition));
  }
  if (!read.shown.isNull())
    kept->remember(number_of(request), ranks, read.shown, tag, static_cast<int64_t>(made.steps.size()));
  pending_symbols.emplace_back(ranks, std::move(made.symbols));
  return object;
}

CellResult CellCompiler::compile(const protocol::Compile& request, const Attempt& attempt) {
  const auto begin = std::chrono::steady_clock::now();
  auto& impl = *impl_;
  CellResult result;
  result.compiled.cell = request.cell;
  impl.diagnostics.start_cell();
  impl.instance->getDiagnostics().Reset(/*soft=*/true);
  const std::string file = impl.file_of(request);
  impl.numbers[request.cell] = number_of(request);
  for (const auto& [number, of] : request.repeats) impl.kept->repeat(number, of);
  try {
    refuse_directives_of_files(request.text, impl.instance->getLangOpts());
    impl.headers->start_cell(request.directory, attempt.headers);
    if (!attempt.headers.empty()) impl.names->forget_headers(attempt.headers);
    const Tokens tokens = impl.parser->lex(request.text, file);
    if (!impl.headers->skipped().empty()) {
      result.again = attempt;
      ++result.again->number;
      result.again->headers.insert(impl.headers->skipped().begin(), impl.headers->skipped().end());
      return result;
    }
    const auto referred = referred_names(tokens, impl.instance->getPreprocessor());
    impl.openmp.start_cell(tokens, referred, *impl.names);
    const auto groups = impl.names->group(request.ranks, referred);
    for (size_t i = 0; i < groups.size() && !impl.diagnostics.failed(); ++i)
      result.compiled.objects.push_back(impl.compile_for(request, attempt, groups[i], i, tokens, result.frames));
    if (!impl.diagnostics.failed()) result.compiled.status = CompileStatus::ok;
    if (!impl.diagnostics.failed() && attempt.showing != ReadPlan::full_value)
      impl.diagnostics.add(DiagnosticSeverity::note,
                           std::string("the value is ") +
                               (attempt.showing == ReadPlan::type_alone ? "shown by its type alone" : "not shown") +
                               ": the code that shows it does not compile (" + attempt.show_problem + ")");
    // A directive, or a macro of the preprocessor's own (__COUNTER__), may make something else of it the next time.
    const bool same_again = request.text.find('#') == std::string::npos && request.text.find("__") == std::string::npos;
    result.compiled.repeatable = groups.size() == 1 && same_again && impl.only_statements && !keeps_state(tokens);
  } catch (const std::runtime_error& error) {
    impl.diagnostics.add(DiagnosticSeverity::error, error.what());
  }
  impl.diagnostics.replace(impl.headers->spelled_paths());
  if (impl.diagnostics.failed()) {
    impl.explain_missing_names();
    if (impl.diagnostics.specialization_again())
      impl.diagnostics.add(DiagnosticSeverity::note,
                           "a specialisation stays as long as its template. To change it, define the template again "
                           "in the same cell, before it");
    result.compiled.status = CompileStatus::error;
    result.compiled.objects.clear();
    result.frames.clear();
    Attempt next = attempt;
    ++next.number;
    for (const Clash& clash : impl.diagnostics.clashes()) {
      const std::pair<unsigned, unsigned> pair(clash.item, clash.earlier);
      if (std::find(next.clashes.begin(), next.clashes.end(), pair) == next.clashes.end()) next.clashes.push_back(pair);
    }
    const bool new_clash = next.clashes.size() > attempt.clashes.size();
    for (const unsigned place : impl.diagnostics.refused_captures())
      if (std::find(next.captures.begin(), next.captures.end(), place) == next.captures.end())
        next.captures.push_back(place);
    const bool new_capture = next.captures.size() > attempt.captures.size();
    const bool predicted_wrong = !new_clash && !new_capture && attempt.predict && impl.hid_something;
    const bool lambda = impl.diagnostics.capture_default_trouble() && attempt.capture_defaults;
    const bool less_shown = impl.diagnostics.show_trouble() && attempt.showing != ReadPlan::nothing;
    if (less_shown) {  // without it the cell may compile
      ++next.showing;
      if (next.show_problem.empty()) next.show_problem = impl.diagnostics.first_error();
      if (next.number < 6) result.again = next;
    }
    if (predicted_wrong) next.predict = false;
    if (lambda) next.capture_defaults = false;
    if (!less_shown && (new_clash || new_capture || predicted_wrong || lambda) && next.number < 6) result.again = next;
  }
  result.compiled.diagnostics = impl.diagnostics.diagnostics();
  DiagnosticText text = impl.diagnostics.rendered();
  result.compiled.rendered = std::move(text.brief);
  result.compiled.rendered_whole = std::move(text.whole);
  result.compiled.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void CellCompiler::settle(const protocol::Settle& request) {
  for (auto& [ranks, symbols] : impl_->pending_symbols) impl_->resident->add(symbols, ranks);
  impl_->pending_symbols.clear();
  impl_->names->settle(request.cell, request.steps_done);
  impl_->kept->settle(request.steps_done);
}

void CellCompiler::forget(const protocol::Forget& request) {
  if (request.rank >= 0) {
    impl_->names->join(request.rank, request.like);
    impl_->kept->join(request.rank, request.like);
    impl_->resident->join(request.rank, request.like);
    return impl_->names->lose(request.rank, request.lost);
  }
  if (request.undo == 0) return impl_->names->forget(request.names);
  std::set<int64_t> parts;  // of the cell
  for (const auto& [id, number] : impl_->numbers)
    if (number == request.undo) parts.insert(id);
  impl_->names->undo(parts);
}

protocol::Names CellCompiler::list_names() {
  PrintingPolicy policy(impl_->instance->getLangOpts());
  return {impl_->names->list(policy)};
}

protocol::Completions CellCompiler::complete(const protocol::Complete& request) {
  auto& impl = *impl_;
  impl.diagnostics.start_cell();
  impl.view_rank = request.ranks.empty() ? 0 : *request.ranks.begin();
  impl.names->show_view(impl.view_rank);
  return complete_in(*impl.instance, *impl.parser, *impl.names, impl.library.get(), request);
}

protocol::Inspection CellCompiler::inspect(const protocol::Inspect& request) {
  auto& impl = *impl_;
  impl.diagnostics.start_cell();
  impl.view_rank = request.ranks.empty() ? 0 : *request.ranks.begin();
  impl.names->show_view(impl.view_rank);
  return inspect_in(*impl.instance, *impl.parser, *impl.names, request);
}

std::string CellCompiler::make_prelude() {
  protocol::Compile request;
  request.text = "namespace lockstep::warm { void* const keep[] = {LOCKSTEP_WARM_FUNCTIONS}; }";
  request.ranks = RankSet{0};
  auto result = compile(request, {});
  if (result.compiled.status != CompileStatus::ok)
    throw StartError("the prelude of cells could not be compiled:\n" + result.compiled.rendered);
  return std::move(result.frames.at(0));
}

}  // namespace lockstep::compiler
