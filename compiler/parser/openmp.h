// When clang has OpenMP on. Its directives become code for LibTorch's own runtime (worker/interpose/openmp.cpp).
//
// Not always: with OpenMP, clang 19 crashes where a function mentions a structured binding of namespace scope, which is
// what bindings of cells are. So it is on from the first cell with a directive, since templates of that cell may be
// instantiated in any later one, and off for cells that mention such a binding.
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

  /// A parser that is made meanwhile takes directives; whether they mean something is decided per cell.
  void while_the_parser_is_made(bool on) { set(on); }

  /// Throws std::runtime_error where the cell has a directive and mentions a structured binding of a cell.
  void start_cell(const Tokens& tokens, const std::set<std::string>& mentioned, const NameTable& names);

 private:
  /// Of 4.5: from 5.0 on clang holds back every variable of a cell in case that a later directive is about it, and the
  /// code that initialises it comes too late for the cell.
  void set(bool on) { language_.OpenMP = on ? 45 : 0; }

  clang::LangOptions& language_;
  bool used_ = false;  // by a cell so far
};

}  // namespace lockstep::compiler
