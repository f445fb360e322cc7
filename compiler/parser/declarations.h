// What a cell has declared, taken from clang's tree: each name for the name table, and on each entity a tag that makes
// its symbol the cell's own.
//
// The tag is an ABI tag (`__attribute__((abi_tag("__cell_7")))`): it goes into the mangled name and nowhere else. So a
// class that two cells define has two symbols for everything that belongs to it, a global called `index` does not meet
// libc's, and neither messages nor debuggers show a generated name. Demanglers write it as `Net[abi:__cell_7]`.
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
  bool is_variable;  // its place in the order of steps decides whether it is there
  size_t item;
};

struct CellDeclarations {
  std::vector<DeclaredName> names;
  std::vector<clang::VarDecl*> variables;            // at namespace scope, defined here
  std::map<std::string, std::string> c_names;  // of extern "C" definitions, by their symbol: what others may look for
};

/// Names and tags what `cell` declares.
CellDeclarations declare(const ReadCell& cell, const std::string& tag, const CellDiagnostics& diagnostics,
                         clang::Sema& sema);

}  // namespace lockstep::compiler
