// Takes what a cell has declared from clang's tree: the names go into the name table, and each entity gets a tag that
// makes its symbol unique to the cell.
//
// The tag is an ABI tag (`__attribute__((abi_tag("__cell_7")))`), which is part of the mangled name only. So two
// definitions of a class share no symbols, a global called `index` does not clash with libc's, and neither messages nor
// debuggers show a generated name. Demanglers write it as `Net[abi:__cell_7]`.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"
#include "compiler/names/names.h"
#include "compiler/parser/cell_parser.h"

namespace lockstep::compiler {

struct DeclaredName {
  std::string name;  // "x", "outer::f"
  std::string kind;
  clang::NamedDecl* decl;
  bool is_variable;  // it exists once its step has run
  size_t item;
};

struct CellDeclarations {
  std::vector<DeclaredName> names;
  std::vector<clang::VarDecl*> variables;  // at namespace scope, defined here
  std::map<std::string, std::string> c_names;  // of extern "C" definitions, by their symbol
};

/// Lists and tags what `cell` declares.
CellDeclarations declare(const ReadCell& cell, const std::string& tag, const CellDiagnostics& diagnostics,
                         clang::Sema& sema);

}  // namespace lockstep::compiler
