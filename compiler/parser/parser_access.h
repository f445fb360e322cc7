// Two functions of clang::Parser that it keeps to itself: whether a declaration or a statement comes next, and reading
// a statement. (clang-repl, which is part of clang, uses them to the same end.) An explicit instantiation may name
// private members; that is how they are reached.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// Does a declaration come next? `in_namespace`: one that stands in no function's body, where `A::A(` begins a
/// constructor's definition, and a template's name and a parenthesis are taken for a deduction guide.
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
