// Parses a cell item by item: a declaration is entered unchanged, a statement becomes the body of a separate function.
// Earlier definitions that an item replaces are hidden just before it is parsed.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compiler/diagnostics/diagnostics.h"
#include "compiler/front_end/clang_headers.h"
#include "compiler/names/names.h"
#include "compiler/names/own_names.h"
#include "compiler/tokens/declared_names.h"
#include "compiler/tokens/token_edits.h"

namespace lockstep::compiler {

/// A call that clang makes to code generation, kept until the complete cell has been parsed without an error.
struct Event {
  enum Kind {
    top_level,
    inline_function,
    tag_definition,
    tag_required,
    static_member,
    tentative,
    external_declaration,
    vtable,
    function_instantiation
  } kind;
  void* decl;
};

/// Stands between Sema and code generation.
class EventConsumer : public clang::ASTConsumer {
 public:
  std::vector<Event>* target = nullptr;  // where events go while a cell is parsed
  std::function<void(const Event&)> listener;  // gets them otherwise: clang reads parts of the header at any time

  bool HandleTopLevelDecl(clang::DeclGroupRef group) override;
  void HandleInterestingDecl(clang::DeclGroupRef group) override { HandleTopLevelDecl(group); }
  void HandleInlineFunctionDefinition(clang::FunctionDecl* decl) override { put(Event::inline_function, decl); }
  void HandleTagDeclDefinition(clang::TagDecl* decl) override { put(Event::tag_definition, decl); }
  void HandleTagDeclRequiredDefinition(const clang::TagDecl* decl) override {
    put(Event::tag_required, const_cast<clang::TagDecl*>(decl));
  }
  void HandleCXXImplicitFunctionInstantiation(clang::FunctionDecl* decl) override {
    put(Event::function_instantiation, decl);
  }
  void CompleteTentativeDefinition(clang::VarDecl* decl) override { put(Event::tentative, decl); }
  void CompleteExternalDeclaration(clang::DeclaratorDecl* decl) override { put(Event::external_declaration, decl); }
  void HandleCXXStaticMemberVarInstantiation(clang::VarDecl* decl) override { put(Event::static_member, decl); }
  void HandleVTable(clang::CXXRecordDecl* decl) override { put(Event::vtable, decl); }

 private:
  void put(Event::Kind kind, void* decl) {
    if (target)
      target->push_back({kind, decl});
    else if (listener)
      listener({kind, decl});
  }
};

struct Item {
  int line = 1;
  clang::FunctionDecl* statement = nullptr;  // the function that it became; nullptr: a declaration
  std::vector<Event> events;
};

/// Says how a cell is parsed. An attempt that fails changes the plan of the next one.
struct ReadPlan {
  RankSet ranks;  // of the cell
  bool predict = true;  // hide what the tokens seem to redefine
  bool capture_defaults = true;  // remove them from lambdas at namespace scope
  std::vector<Clash> clashes;  // hide these, which clang has reported
  std::vector<unsigned> captures;  // that clang rejected, as offsets in the text
  enum Showing { full_value, type_alone, nothing };
  int showing = full_value;  // less if the code that shows the last value does not compile
};

struct ReadCell {
  std::vector<Item> items;
  std::vector<Event> tail;  // templates that the cell has instantiated
  std::set<std::string> mentioned;  // identifiers
  std::set<std::string> functions;  // that its tokens define
  std::vector<clang::NamedDecl*> hidden;  // earlier definitions that it replaces
  clang::QualType shown;  // type of the last expression, if it has a value that is shown
};

class CellParser {
 public:
  CellParser(clang::CompilerInstance& instance, EventConsumer& consumer, NameTable& names, CellDiagnostics& diagnostics,
             const OwnNames& own);

  /// Returns the tokens of `text`, which is shown as the file `file`.
  Tokens lex(const std::string& text, const std::string& file);
  /// Does the same for a text in which something is to be completed at `line` and `column`, both from 1.
  Tokens lex_for_completion(const std::string& text, unsigned line, unsigned column);
  /// Parses an expression by itself, as in a statement; nullptr if the text is not one.
  clang::Expr* read_expression(const std::string& text);
  /// Parses the cell. Errors are in the diagnostics; after an error the process must not be used again.
  ReadCell read(Tokens tokens, int64_t cell, int64_t number, const std::string& tag, const ReadPlan& plan);

  clang::Parser& parser() { return *parser_; }
  /// Whether a parenthesis follows `name`, which clang looks up at this moment.
  bool is_called(const clang::IdentifierInfo* name);

 private:
  Tokens lex_file(clang::FileID id);
  clang::FunctionDecl* make_step(clang::SourceLocation place, int64_t number, const std::string& tag);
  void hide_replaced(const Declared& declared, ReadCell& read);
  void hide(const std::string& name, clang::NamedDecl* decl, ReadCell& read);
  void take_using_directives(const Item& item, int64_t cell, const RankSet& ranks);
  clang::FunctionDecl* read_statement(int64_t cell, int64_t number, const std::string& tag, size_t index, bool show);
  clang::ExprResult with_show(clang::ExprResult expression, int64_t cell);
  bool declaration_comes_next(size_t position, bool shown, const ReadCell& read);
  bool is_value(size_t name, const ReadCell& read) const;
  void warn_of_lost_value(size_t name);

  clang::CompilerInstance& instance_;
  clang::Sema& sema_;
  clang::Preprocessor& preprocessor_;
  EventConsumer& consumer_;
  NameTable& names_;
  CellDiagnostics& diagnostics_;
  OwnNames own_;
  std::unique_ptr<clang::Parser> parser_;
  Tokens tokens_;  // the parser reads from here
  int showing_ = ReadPlan::full_value;
  clang::QualType shown_;
};

}  // namespace lockstep::compiler
