// Questions about a text that is not compiled: completion and inspection.
#pragma once
#include "compiler/names/names.h"
#include "compiler/parser/cell_parser.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// The names, members, types and macros that may follow at the offset in `request` and begin with the word before it,
/// best first; and the signatures of the call around the offset.
protocol::Completions complete_in(clang::CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                  const protocol::Complete& request);

/// Type, declaration and comment of an expression, a type or a namespace.
protocol::Inspection inspect_in(clang::CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                const protocol::Inspect& request);

}  // namespace lockstep::compiler
