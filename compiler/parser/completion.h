// Finds what may follow in a text that is being typed.
//
// Clang would read all names of a namespace from the precompiled header, once for each question: 50 ms for the global
// namespace, 200 ms for `torch`. These names never change, so a list of them is made with the header (library_names.h).
// Clang is asked for the rest: names of cells, locals, members of classes, what the user's headers add.
#pragma once
#include <string>

#include "compiler/names/library_names.h"
#include "compiler/names/names.h"
#include "compiler/parser/cell_parser.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// Returns the names, members, types and macros that may follow at the offset in `request` and begin with the word
/// before it, best first; and the signatures of the call around the offset. Without the list of the header's names
/// (nullptr) it takes longer, and the answer is the same.
protocol::Completions complete_in(clang::CompilerInstance& instance, CellParser& parser, const NameTable& names,
                                  const LibraryNames* library, const protocol::Complete& request);

/// Returns the text of the list for the header that `instance` has read. Nothing may have been parsed after it; the
/// process can't be used for anything else afterwards.
std::string list_library_names(clang::CompilerInstance& instance, const NameTable& names);

}  // namespace lockstep::compiler
