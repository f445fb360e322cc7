// Enables OpenMP in clang for the cells that use it. Directives become calls of LibTorch's OpenMP runtime
// (worker/interpose/openmp.cpp).
//
// With OpenMP enabled, clang 19 crashes where a function mentions a structured binding of namespace scope, as bindings
// of cells are. So OpenMP is enabled from the first cell with a directive on, since later cells may instantiate
// templates of that cell, and disabled for cells that mention such a binding.
#pragma once
#include <set>
#include <string>

#include "compiler/front_end/clang_headers.h"
#include "compiler/names/names.h"
#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

class OpenMp {
 public:
  explicit OpenMp(clang::LangOptions& language) : language_(language) {}

  /// A parser that is created while this is on accepts directives; start_cell() decides whether they have an effect.
  void while_the_parser_is_made(bool on) { set(on); }

  /// Throws std::runtime_error if the cell has a directive and mentions a structured binding of a cell.
  void start_cell(const Tokens& tokens, const std::set<std::string>& mentioned, const NameTable& names);

 private:
  /// The version is 4.5: from 5.0 on, clang delays each variable of a cell, since a later directive may refer to it,
  /// and the code that initialises it comes too late for the cell.
  void set(bool on) { language_.OpenMP = on ? 45 : 0; }

  clang::LangOptions& language_;
  bool used_ = false;  // by a cell so far
};

}  // namespace lockstep::compiler
