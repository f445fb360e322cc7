// Questions about a text that is not compiled: what may stand here, what is this.
#pragma once
#include "compiler/names/names.h"
#include "compiler/parser/cell_parser.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// What may stand at the place that `request` names: names that begin as what is typed there, members, types, macros.
protocol::Completions complete_in(clang::CompilerInstance& instance, CellParser& parser,
                                  const protocol::Complete& request);

/// Type, declaration and comment of an expression, a type or a namespace.
protocol::Inspection inspect_in(clang::CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                const protocol::Inspect& request);

}  // namespace lockstep::compiler
