// Gives access to two private functions of clang::Parser: the test whether a declaration or a statement comes next, and
// the parser of statements. (clang-repl, which is part of clang, uses them for the same purpose.) The access is an
// explicit instantiation, which may name private members.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// Whether a declaration comes next. `in_namespace` means outside of functions, where `A::A(` begins the definition of
/// a constructor, and a template's name with a parenthesis begins a deduction guide.
bool next_is_declaration(clang::Parser& parser, bool in_namespace);
clang::StmtResult parse_statement(clang::Parser& parser, clang::SmallVectorImpl<clang::Stmt*>& statements);

namespace detail {

template <typename Class>
bool call(Class& parser, bool (Class::*member)(bool), bool in_namespace) {
  return (parser.*member)(/*DisambiguatingWithExpression=*/in_namespace);
}

template <typename Class, typename Statements, typename Context>
clang::StmtResult call(Class& parser, clang::StmtResult (Class::*member)(Statements&, Context, clang::SourceLocation*),
                       clang::SmallVectorImpl<clang::Stmt*>& statements) {
  Statements read;
  const auto result = (parser.*member)(read, Context::Compound, nullptr);
  statements.append(read.begin(), read.end());
  return result;
}

}  // namespace detail

template <auto Member>
struct DeclarationAccess {
  friend bool next_is_declaration(clang::Parser& parser, bool in_namespace) {
    return detail::call(parser, Member, in_namespace);
  }
};

template <auto Member>
struct StatementAccess {
  friend clang::StmtResult parse_statement(clang::Parser& parser, clang::SmallVectorImpl<clang::Stmt*>& statements) {
    return detail::call(parser, Member, statements);
  }
};

}  // namespace lockstep::compiler
