// Provides the precompiled header of cells, the list of its names, and the prelude's shared object. They are built once
// per installation, and all sessions of a user share them.
//
// They are in CACHE/pch/KEY/ (compiler/process/shared_folder.h), or for all users of an installation in HOME/pch/KEY/
// (protocol::shared_home()), which sessions only read. The key is a hash of everything that they depend on: compiler,
// LibTorch, flags, the text of the headers.
#pragma once
#include <functional>
#include <string>

#include "compiler/process/options.h"
#include "compiler/process/shared_folder.h"

namespace lockstep::compiler {

struct HeaderFiles {
  std::string precompiled;
  std::string prelude;
  std::string library_names;  // compiler/names/library_names.h
};

/// Returns sixteen hexadecimal digits.
std::string header_key(const Options& options);

/// Returns the folder of the files, which need not exist yet: that of all users if it is complete and nobody else than
/// root and this user can write it, otherwise that of this user.
std::string header_folder(const Options& options);

/// Returns the files. Builds them in a child of this process if they are missing or damaged, in some 25 s; `progress`
/// receives its steps. Throws StartError: no cache that can be written to or trusted, no space, headers that do not
/// compile.
HeaderFiles provide_header(const Options& options, const ReportProgress& progress);

}  // namespace lockstep::compiler
