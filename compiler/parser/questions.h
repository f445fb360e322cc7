// Answers questions about a text that is not compiled: inspection (for completion see completion.h).
#pragma once
#include "compiler/names/names.h"
#include "compiler/parser/cell_parser.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// Returns type, declaration and comment of an expression, a type or a namespace.
protocol::Inspection inspect_in(clang::CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                const protocol::Inspect& request);

}  // namespace lockstep::compiler
