#include "compiler/parser/cell_parser.h"

#include <algorithm>
#include <utility>

#include "compiler/parser/parser_access.h"
#include "compiler/tokens/file_pragmas.h"
#include "compiler/tokens/functional_cast.h"

namespace lockstep::compiler {

template struct DeclarationAccess<&clang::Parser::isDeclarationStatement>;
template struct StatementAccess<&clang::Parser::ParseStatementOrDeclaration>;

using namespace clang;

/// Equals lockstep::kTypeAlone in worker/cell/show.h.
static constexpr int64_t kTypeAlone = -1;

bool EventConsumer::HandleTopLevelDecl(DeclGroupRef group) {
  for (Decl* decl : group) put(Event::top_level, decl);
  return true;
}

CellParser::CellParser(CompilerInstance& instance, EventConsumer& consumer, NameTable& names,
                       CellDiagnostics& diagnostics, const OwnNames& own)
    : instance_(instance),
      sema_(instance.getSema()),
      preprocessor_(instance.getPreprocessor()),
      consumer_(consumer),
      names_(names),
      diagnostics_(diagnostics),
      own_(own),
      parser_(std::make_unique<Parser>(preprocessor_, sema_, /*SkipFunctionBodies=*/false)) {
  preprocessor_.EnterMainSourceFile();
  parser_->Initialize();
  set_up_pragmas(preprocessor_);
}

Tokens CellParser::lex(const std::string& text, const std::string& file) {
  auto& sources = instance_.getSourceManager();
  const FileID id = sources.createFileID(llvm::MemoryBuffer::getMemBufferCopy(text, file));
  const WithoutMacros own(preprocessor_, text);
  return lex_file(id);
}

Tokens CellParser::lex_for_completion(const std::string& text, unsigned line, unsigned column) {
  auto& sources = instance_.getSourceManager();
  const auto entry =
      instance_.getFileManager().getVirtualFileRef("completion.cpp", static_cast<off_t>(text.size()), /*time=*/0);
  sources.overrideFileContents(entry, llvm::MemoryBuffer::getMemBufferCopy(text, "completion.cpp"));
  preprocessor_.SetCodeCompletionPoint(entry, line, column);
  return lex_file(sources.createFileID(entry, SourceLocation(), SrcMgr::C_User));
}

namespace {

/// Clang reads the text of any program, without its extensions for cells. With them files end with an annotation, for
/// which the readers of a macro's arguments and of _Pragma do not look: they go on for ever, and keep each token. And the
/// parser of declarations tests first whether a statement comes, which looks names up before it delays checks of access.
class OrdinaryText {
 public:
  explicit OrdinaryText(LangOptions& options) : options_(options) { options_.IncrementalExtensions = false; }
  ~OrdinaryText() { options_.IncrementalExtensions = true; }

 private:
  LangOptions& options_;
};

}  // namespace

Tokens CellParser::lex_file(FileID id) {
  auto& sources = instance_.getSourceManager();
  diagnostics_.set_first_place(sources.getLocForStartOfFile(id));
  preprocessor_.EnterSourceFile(id, nullptr, SourceLocation());
  const OrdinaryText ordinary(instance_.getLangOpts());
  Tokens tokens;
  for (;;) {
    Token token;
    preprocessor_.Lex(token);
    if (token.is(tok::eof)) {
      token.startToken();
      token.setKind(tok::eof);
      token.setLocation(sources.getLocForEndOfFile(id));
      tokens.push_back(token);
      return tokens;
    }
    tokens.push_back(token);
  }
}

bool CellParser::is_called(const IdentifierInfo* name) {
  const Token& current = parser_->getCurToken();
  const bool is_current = current.is(tok::identifier) && current.getIdentifierInfo() == name;
  return (is_current ? preprocessor_.LookAhead(0) : current).is(tok::l_paren);
}

void CellParser::hide(const std::string& name, NamedDecl* decl, ReadCell& read) {
  names_.hide(name, decl);
  read.hidden.push_back(decl);
}

/// Hides what a declaration replaces, but not what it completes or overloads.
void CellParser::hide_replaced(const Declared& declared, ReadCell& read) {
  if (!declared.replaces && declared.form == Declared::variable) return;
  for (NamedDecl* earlier : names_.lookup(declared.path, declared.name)) {
    const bool of_this_cell = std::any_of(read.items.begin(), read.items.end(), [&](const Item& item) {
      return std::any_of(item.events.begin(), item.events.end(),
                         [&](const Event& event) { return event.kind == Event::top_level && event.decl == earlier; });
    });
    if (of_this_cell || llvm::isa<NamespaceDecl>(earlier)) continue;
    if (llvm::isa<TagDecl>(earlier) && !declared.is_type()) continue;  // `int stat;` and `struct stat` go together
    if (diagnostics_.is_of_this_cell(earlier->getLocation(), instance_.getSourceManager())) continue;
    const auto of_header = [&](const auto* decl) {
      return instance_.getSourceManager().isLoadedSourceLocation(decl->getFirstDecl()->getLocation());
    };
    const auto* function = earlier->getAsFunction();
    const bool of_c_library = function && function->isExternC() && of_header(function);
    switch (declared.form) {
      case Declared::type_definition:
        if (const auto* tag = llvm::dyn_cast<TagDecl>(earlier); tag && !tag->getDefinition() && !tag->isBeingDefined())
          continue;
        if (const auto* tag = llvm::dyn_cast<ClassTemplateDecl>(earlier);
            tag && !tag->getTemplatedDecl()->getDefinition())
          continue;
        break;
      case Declared::variable:
        if (const auto* variable = llvm::dyn_cast<VarDecl>(earlier);
            variable && variable->hasDefinition() == VarDecl::DeclarationOnly && !of_header(variable))
          continue;
        break;
      case Declared::function_declaration:
        // A prototype of a function that the cell defines further down does not declare the library's function.
        if (function && !(of_c_library && read.functions.contains(declared.name))) continue;
        break;
      case Declared::function_definition:
        if (function && !of_c_library) {
          if (instance_.getSourceManager().isLoadedSourceLocation(earlier->getLocation())) continue;
          if ((!function->isDefined() || names_.parameters_of(earlier) != declared.parameters)) continue;
        }
        break;
      case Declared::alias:
        break;
    }
    hide(declared.path.empty() ? declared.name : declared.path + "::" + declared.name, earlier, read);
  }
}

/// From here on a namespace that the cell uses is searched last (CellCompiler), so that names of cells take precedence
/// over those of libraries, and `using namespace std;` does not make `rank` ambiguous. A function of the namespace is
/// found before a variable of Lockstep's where it is called: `device(kCPU)`.
void CellParser::take_using_directives(const Item& item, int64_t cell, const RankSet& ranks) {
  for (const Event& event : item.events) {
    if (event.kind != Event::top_level) continue;
    auto* use = llvm::dyn_cast<UsingDirectiveDecl>(static_cast<Decl*>(event.decl));
    if (!use || !use->getDeclContext()->isTranslationUnit()) continue;
    sema_.Context.getTranslationUnitDecl()->removeDecl(use);
    names_.use_namespace({use->getNominatedNamespace()->getCanonicalDecl(), cell, ranks});
    for (VarDecl* value : own_.values) {
      LookupResult found(sema_, value->getDeclName(), use->getLocation(), Sema::LookupOrdinaryName);
      found.suppressDiagnostics();
      sema_.LookupQualifiedName(found, use->getNominatedNamespace());
      if (std::any_of(found.begin(), found.end(),
                      [](const NamedDecl* decl) { return decl->getUnderlyingDecl()->getAsFunction(); }))
        names_.find_last(value);
    }
  }
}

/// Whether the type is numbers, tensors, or the standard library's containers of these: no later cell can change how
/// they are shown, so the code that shows them is compiled once for all cells.
static bool is_shown_alike(QualType type) {
  const QualType plain = type.getNonReferenceType().getCanonicalType().getUnqualifiedType();
  if (plain->isBuiltinType()) return plain->isArithmeticType();
  const CXXRecordDecl* record = plain->getAsCXXRecordDecl();
  if (!record || record->isLambda()) return false;
  if (record->getName() == "Tensor" && record->getQualifiedNameAsString() == "at::Tensor") return true;
  const auto* instance = llvm::dyn_cast<ClassTemplateSpecializationDecl>(record);
  if (!instance || !record->isInStdNamespace()) return false;
  const auto is_alike = [](const TemplateArgument& argument, const auto& again) -> bool {
    if (argument.getKind() == TemplateArgument::Pack)
      return llvm::all_of(argument.pack_elements(), [&](const auto& one) { return again(one, again); });
    return argument.getKind() == TemplateArgument::Integral ||
           (argument.getKind() == TemplateArgument::Type && is_shown_alike(argument.getAsType()));
  };
  return llvm::all_of(instance->getTemplateArgs().asArray(),
                      [&](const auto& argument) { return is_alike(argument, is_alike); });
}

/// Whether it has a value to which no reference can be bound: a bit-field, or a class's `static const int n = 3;`
/// without a definition.
static bool has_no_address(const Expr* expression) {
  if (expression->refersToBitField()) return true;
  const Decl* decl = expression->getReferencedDeclOfCallee();
  const auto* variable = llvm::dyn_cast_or_null<VarDecl>(decl);
  return variable && variable->isStaticDataMember() && !variable->getDefinition() &&
         variable->getType()->isIntegralOrEnumerationType();
}

/// Returns lockstep::show_value<CELL>(EXPRESSION), if the expression has a value. The function is called directly, so
/// that no overload of the user is considered.
ExprResult CellParser::with_show(ExprResult expression, int64_t cell) {
  if (!own_.show_value || expression.get()->getType()->isVoidType()) return expression;
  expression = sema_.CheckPlaceholderExpr(expression.get());
  if (expression.isUsable() && has_no_address(expression.get()))
    expression = sema_.DefaultLvalueConversion(expression.get());
  if (!expression.isUsable() || expression.get()->getType()->isVoidType()) return expression;
  if (is_shown_alike(expression.get()->getType())) cell = 0;
  auto& context = sema_.Context;
  const SourceLocation place = expression.get()->getEndLoc();
  auto* number = IntegerLiteral::Create(
      context, llvm::APInt(context.getIntWidth(context.IntTy), static_cast<uint64_t>(cell)), context.IntTy, place);
  TemplateArgumentListInfo arguments(place, place);
  arguments.addArgument(TemplateArgumentLoc(TemplateArgument(number), number));
  UnresolvedSet<1> functions;
  functions.addDecl(own_.show_value);
  auto* function = UnresolvedLookupExpr::Create(context, nullptr, NestedNameSpecifierLoc(), SourceLocation(),
                                                DeclarationNameInfo(own_.show_value->getDeclName(), place),
                                                /*RequiresADL=*/false, &arguments, functions.begin(), functions.end(),
                                                /*KnownDependent=*/false, /*KnownInstantiationDependent=*/false);
  Expr* value[] = {expression.get()};
  return sema_.BuildCallExpr(parser_->getCurScope(), function, place, value, place);
}

FunctionDecl* CellParser::make_step(SourceLocation place, int64_t number, const std::string& tag) {
  auto& context = sema_.Context;
  const QualType type = context.getFunctionType(context.VoidTy, {}, FunctionProtoType::ExtProtoInfo());
  auto* function = FunctionDecl::Create(context, context.getTranslationUnitDecl(), place, place,
                                        DeclarationName(&context.Idents.get("cell_" + std::to_string(number))), type,
                                        context.getTrivialTypeSourceInfo(type, place), SC_None);
  llvm::StringRef tags[] = {tag};
  function->addAttr(AbiTagAttr::CreateImplicit(context, tags, 1));
  return function;
}

Expr* CellParser::read_expression(const std::string& text) {
  tokens_ = lex(text, "expression");
  Token semicolon = tokens_.back();
  semicolon.setKind(tok::semi);
  tokens_.insert(tokens_.end() - 1, semicolon);
  preprocessor_.EnterTokenStream(tokens_, /*DisableMacroExpansion=*/true, /*IsReinject=*/true);
  parser_->ConsumeAnyToken();
  FunctionDecl* function = make_step(parser_->getCurToken().getLocation(), 0, "__cell_question");
  Parser::ParseScope scope(parser_.get(), Scope::FnScope | Scope::DeclScope | Scope::CompoundStmtScope);
  sema_.ActOnStartOfFunctionDef(parser_->getCurScope(), function);
  const ExprResult expression = sema_.CorrectDelayedTyposInExpr(parser_->ParseExpression());
  const bool is_complete = parser_->getCurToken().is(tok::semi);
  sema_.ActOnFinishFunctionBody(function, CompoundStmt::Create(sema_.Context, {}, FPOptionsOverride(),
                                                               function->getLocation(), function->getLocation()));
  scope.Exit();
  return is_complete && expression.isUsable() && !diagnostics_.failed() ? expression.get() : nullptr;
}

FunctionDecl* CellParser::read_statement(int64_t cell, int64_t number, const std::string& tag, size_t index,
                                         bool show) {
  auto& context = sema_.Context;
  const SourceLocation place = parser_->getCurToken().getLocation();
  FunctionDecl* function = make_step(place, number, tag + "_s" + std::to_string(index));

  Parser::ParseScope scope(parser_.get(), Scope::FnScope | Scope::DeclScope | Scope::CompoundStmtScope);
  sema_.ActOnStartOfFunctionDef(parser_->getCurScope(), function);
  SmallVector<Stmt*, 8> statements;
  {
    Sema::CompoundScopeRAII compound(sema_);
    StmtResult result;
    if (show) {
      ExprResult expression = sema_.CorrectDelayedTyposInExpr(parser_->ParseExpression());
      if (expression.isUsable() && showing_ != ReadPlan::nothing) {
        shown_ = expression.get()->getType();
        expression = with_show(expression, showing_ == ReadPlan::type_alone ? kTypeAlone : cell);
      }
      result = expression.isUsable() ? sema_.ActOnExprStmt(expression) : StmtError();
      if (parser_->getCurToken().is(tok::semi)) {
        parser_->ConsumeToken();
      } else if (!diagnostics_.failed()) {
        auto& engine = sema_.getDiagnostics();
        engine.Report(parser_->getCurToken().getLocation(),
                      engine.getCustomDiagID(DiagnosticsEngine::Error, "expected ';' after expression"));
      }
    } else {
      result = parse_statement(*parser_, statements);
    }
    if (result.isUsable()) statements.push_back(result.get());
  }
  Stmt* body = CompoundStmt::Create(context, statements, FPOptionsOverride(), place,
                                    statements.empty() ? place : statements.back()->getEndLoc());
  sema_.ActOnFinishFunctionBody(function, body);
  scope.Exit();
  return function;
}

namespace {

/// Whether an expression that is shown can begin with this token.
bool may_begin_expression(const Token& token) {
  return !token.isOneOf(tok::kw_if, tok::kw_for, tok::kw_while, tok::kw_do, tok::kw_switch, tok::kw_return,
                        tok::kw_goto, tok::kw_break, tok::kw_continue, tok::kw_try, tok::l_brace, tok::kw_case,
                        tok::kw_default, tok::kw_co_return, tok::kw_asm, tok::semi, tok::r_brace) &&
         !token.isAnnotation();
}

/// Whether only a declaration begins with this token. Clang's own test does not know these.
bool begins_declaration(const Token& token) {
  return token.isOneOf(tok::kw_template, tok::kw_namespace, tok::kw_using, tok::kw_extern, tok::kw_inline,
                       tok::kw_alignas, tok::kw_static_assert, tok::kw_typedef, tok::kw_export, tok::kw_concept,
                       tok::r_brace) ||
         token.isAnnotation();
}

/// Whether the attributes at `position` belong to a statement. Clang's own test does not tell statements from
/// declarations after attributes.
bool attributes_of_statement(const Tokens& tokens, size_t position) {
  for (size_t i = position; i + 2 < after_bracket(tokens, position); ++i)
    if (tokens[i].is(tok::identifier)) {
      const auto name = tokens[i].getIdentifierInfo()->getName();
      if (name == "likely" || name == "unlikely" || name == "fallthrough" || name == "assume") return true;
    }
  const size_t after = after_attributes(tokens, position);
  return after >= tokens.size() ||
         tokens[after].isOneOf(tok::kw_if, tok::kw_for, tok::kw_while, tok::kw_do, tok::kw_switch, tok::kw_return,
                               tok::kw_try, tok::l_brace, tok::semi);
}

bool is_statement_pragma(const Token& token) {
  return token.isOneOf(tok::annot_pragma_loop_hint, tok::annot_pragma_openmp, tok::annot_pragma_fp_contract);
}

/// Whether the item at `position` is the last one of a cell without a last semicolon.
bool reaches_end(const Tokens& tokens, size_t position) {
  while (position + 2 < tokens.size() && !tokens[position].is(tok::semi))
    position = tokens[position].isOneOf(tok::l_paren, tok::l_square, tok::l_brace) ? after_bracket(tokens, position)
                                                                                   : position + 1;
  return position + 2 >= tokens.size();
}

}  // namespace

/// Whether the identifier at `name` refers to a value, or did so until this cell began to redefine it.
bool CellParser::is_value(size_t name, const ReadCell& read) const {
  if (!is_at(tokens_, name, tok::identifier)) return false;
  const DeclarationName declared(tokens_[name].getIdentifierInfo());
  const auto holds_value = [](const NamedDecl* decl) {
    return llvm::isa<ValueDecl, FunctionTemplateDecl>(decl->getUnderlyingDecl());
  };
  LookupResult found(sema_, declared, tokens_[name].getLocation(), Sema::LookupOrdinaryName);
  found.suppressDiagnostics();
  sema_.LookupName(found, sema_.TUScope);
  return std::any_of(found.begin(), found.end(), holds_value) ||
         std::any_of(read.hidden.begin(), read.hidden.end(),
                     [&](const NamedDecl* decl) { return decl->getDeclName() == declared && holds_value(decl); });
}

void CellParser::warn_of_lost_value(size_t name) {
  auto& engine = sema_.getDiagnostics();
  const auto warning = engine.getCustomDiagID(DiagnosticsEngine::Warning,
                                              "'%0' is declared again, and its value is gone: with a ';' this is a "
                                              "declaration. To convert %0, leave out the ';' or write (TYPE)%0");
  engine.Report(tokens_[name].getLocation(), warning) << identifier(tokens_, name);
}

namespace {

/// Delays checks of access until it is known who names the member: the nested class in `Outer::Inner::Inner() {}` may
/// be private. Clang's parser of declarations delays them itself, but not its test for what comes next, which remembers
/// what it has looked up.
class DelayedAccess {
 public:
  explicit DelayedAccess(Sema& sema) : sema_(sema), state_(sema.DelayedDiagnostics.push(pool_)) {}
  ~DelayedAccess() { end_delay(); }
  DelayedAccess(const DelayedAccess&) = delete;
  DelayedAccess& operator=(const DelayedAccess&) = delete;

  void end_delay() {
    if (std::exchange(delays_, false)) sema_.DelayedDiagnostics.popWithoutEmitting(state_);
  }
  /// Reports what `decl` may not name.
  void check_in(Decl* decl) {
    for (auto each = pool_.pool_begin(); each != pool_.pool_end(); ++each)
      if (!each->Triggered && each->Kind == sema::DelayedDiagnostic::Access)
        sema_.HandleDelayedAccessCheck(const_cast<sema::DelayedDiagnostic&>(*each), decl);
  }

 private:
  Sema& sema_;
  sema::DelayedDiagnosticPool pool_{nullptr};
  Sema::DelayedDiagnosticsState state_;
  bool delays_ = true;
};

}  // namespace

/// Decides as clang does in a function's body, except for `T(x)` where x has a value: without a semicolon (`shown`) it
/// is an expression, since a user who asks for the value of x in another type does not mean to lose it.
bool CellParser::declaration_comes_next(size_t position, bool shown, const ReadCell& read) {
  if (!next_is_declaration(*parser_, /*in_namespace=*/true)) return false;
  const auto cast = functional_cast(tokens_, position);
  if (!cast || cast->guide_or_constructor) return true;
  if (cast->bare && !next_is_declaration(*parser_, /*in_namespace=*/false)) return false;
  if (declares_more(tokens_, *cast) || !(cast->qualified ? shown : is_value(cast->name, read))) return true;
  if (!shown) warn_of_lost_value(cast->name);
  return !shown;
}

ReadCell CellParser::read(Tokens tokens, int64_t cell, int64_t number, const std::string& tag, const ReadPlan& plan) {
  auto& sources = instance_.getSourceManager();
  ReadCell read;
  tokens_ = std::move(tokens);
  showing_ = plan.showing;
  shown_ = QualType();
  for (const Token& token : tokens_)
    if (token.is(tok::identifier)) read.mentioned.insert(token.getIdentifierInfo()->getName().str());
  read.functions = defined_functions(tokens_, preprocessor_);
  edit_tokens(tokens_, preprocessor_,
              {plan.capture_defaults, [&](const Token& token) {
                 const auto place =
                     plan.captures.empty() ? std::nullopt : diagnostics_.place_in_text(token.getLocation(), sources);
                 return place && std::find(plan.captures.begin(), plan.captures.end(), *place) != plan.captures.end();
               }});
  // A last item without its semicolon gets one. Whether it is an expression to show is known when the parser reaches
  // it.
  const Token end = tokens_.back();
  tokens_.pop_back();
  const bool semicolon_missing = !tokens_.empty() && !tokens_.back().is(tok::semi);
  if (semicolon_missing) {
    Token semicolon = end;
    semicolon.setKind(tok::semi);
    semicolon.setLength(0);
    semicolon.setLocation(tokens_.back().isAnnotation() ? end.getLocation() : tokens_.back().getEndLoc());
    tokens_.push_back(semicolon);
  }
  tokens_.push_back(end);

  Sema::GlobalEagerInstantiationScope global(sema_, /*Enabled=*/true);
  Sema::LocalEagerInstantiationScope local(sema_);
  preprocessor_.EnterTokenStream(tokens_, /*DisableMacroExpansion=*/true, /*IsReinject=*/true);
  consumer_.target = &read.tail;
  parser_->ConsumeAnyToken();
  size_t position = 0, statements = 0;
  while (!parser_->getCurToken().is(tok::eof)) {
    const Token first = parser_->getCurToken();
    if (first.is(tok::semi)) {
      parser_->ConsumeToken();
      continue;
    }
    while (position < tokens_.size() && tokens_[position].getLocation() != first.getLocation()) ++position;
    Item& item = read.items.emplace_back();
    const auto item_index = static_cast<unsigned>(read.items.size() - 1);
    diagnostics_.set_item(item_index);
    item.line = static_cast<int>(sources.getPresumedLineNumber(sources.getExpansionLoc(first.getLocation())));
    for (const Clash& clash : plan.clashes) {
      if (clash.item != item_index || position >= tokens_.size()) continue;
      for (const auto& [name, decl] : names_.at_place(clash.earlier)) hide(name, decl, read);
      for (const auto& name : read.mentioned)
        for (NamedDecl* earlier : names_.lookup("", name))
          if (earlier->getLocation().getRawEncoding() == clash.earlier) hide(name, earlier, read);
    }
    consumer_.target = &read.items.back().events;
    // The value of a last expression without its semicolon is shown.
    const bool shown = semicolon_missing && may_begin_expression(first) && reaches_end(tokens_, position);
    const bool attributes =
        position + 1 < tokens_.size() && first.is(tok::l_square) && tokens_[position + 1].is(tok::l_square);
    DelayedAccess access(sema_);
    const bool declaration = attributes
                                 ? !attributes_of_statement(tokens_, position)
                                 : !is_statement_pragma(first) && !first.is(tok::kw_asm) &&
                                       (begins_declaration(first) || declaration_comes_next(position, shown, read));
    access.end_delay();
    if (declaration) {
      std::vector<Declared> declared;
      const bool of_library = sources.isInSystemHeader(sources.getExpansionLoc(first.getLocation()));
      if (position < tokens_.size() && !of_library) declared = declared_names(tokens_, position, preprocessor_);
      if (plan.predict)
        for (const auto& one : declared) hide_replaced(one, read);
      Parser::DeclGroupPtrTy group;
      Sema::ModuleImportState import_state = Sema::ModuleImportState::NotACXX20Module;
      {
        const OrdinaryText ordinary(instance_.getLangOpts());
        parser_->ParseTopLevelDecl(group, import_state);
      }
      if (group) {
        access.check_in(*group.get().begin());
        consumer_.HandleTopLevelDecl(group.get());
      }
      for (const auto& one : declared)
        if (one.form == Declared::function_definition)
          for (NamedDecl* function : names_.lookup(one.path, one.name))
            if (diagnostics_.is_of_this_cell(function->getLocation(), sources) &&
                function->getLocation().getRawEncoding() >= first.getLocation().getRawEncoding())
              names_.remember_parameters(function, one.parameters);
    } else {
      FunctionDecl* function = read_statement(cell, number, tag, statements++, shown);
      access.check_in(function);
      read.items[item_index].statement = function;
      consumer_.target = &read.items[item_index].events;
      consumer_.HandleTopLevelDecl(DeclGroupRef(function));
    }
    take_using_directives(read.items[item_index], cell, plan.ranks);
    consumer_.target = &read.tail;
    const Token& next = parser_->getCurToken();
    if (!next.is(tok::eof) && next.getLocation() == first.getLocation() && next.is(first.getKind()))
      parser_->ConsumeAnyToken();  // clang could not parse it, and has reported that
  }
  global.perform();
  local.perform();
  consumer_.target = nullptr;
  if (!shown_.isNull() && !shown_->isVoidType() && !shown_->isPlaceholderType())
    read.shown = shown_.getNonReferenceType();
  return read;
}

}  // namespace lockstep::compiler
