// Sets clang up for cells: its flags, and how the precompiled header is built and read.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/process/options.h"

namespace clang {
class CompilerInstance;
class DiagnosticConsumer;
}  // namespace clang

namespace lockstep::compiler {

/// Returns the flags with which everything is compiled: the precompiled header, the prelude, and cells.
std::vector<std::string> compile_flags(const Options& options);

/// Returns what is wrong with the machine's headers of the C and the C++ library, which clang takes from its g++, as a
/// sentence with the fix; empty if nothing is.
std::string standard_headers_problem(const Options& options);

/// Returns the text of the precompiled header.
std::string header_text(const Options& options);

/// Builds the precompiled header into the file `path`. Takes some 20 s and leaves a gigabyte of memory used, so it is
/// done in a child. Throws StartError with clang's messages.
void build_header(const Options& options, const std::string& path);

struct FileVersions;

/// Returns a compiler that continues after the precompiled header at `path`. `diagnostics` is not owned. Files are read
/// by their `versions` (user_headers.h). Throws StartError when the header can't be read (damaged, or another version
/// wrote it).
std::unique_ptr<clang::CompilerInstance> read_header(const Options& options, const std::string& path,
                                                     clang::DiagnosticConsumer* diagnostics,
                                                     std::shared_ptr<FileVersions> versions);

}  // namespace lockstep::compiler
