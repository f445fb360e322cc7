// The precompiled header of cells and the prelude's shared object, built once per installation and shared by all
// sessions of a user.
//
// They lie in CACHE/pch/KEY/ (compiler/process/shared_folder.h); the key names everything that they depend on: compiler,
// LibTorch, flags, the headers' text.
#pragma once
#include <functional>
#include <string>

#include "compiler/process/options.h"

namespace lockstep::compiler {

struct HeaderFiles {
  std::string precompiled;
  std::string prelude;
};

/// Sixteen hexadecimal digits.
std::string header_key(const Options& options);

/// Where the files lie, or will.
std::string header_folder(const Options& options);

/// The files, built if need be, in some 25 s, which `progress` is given a sentence about. A damaged folder is built
/// again, in a child of this process. Throws StartError: no cache that can be written to or trusted, no space, headers
/// that do not compile.
HeaderFiles provide_header(const Options& options, const std::function<void(const std::string&)>& progress);

}  // namespace lockstep::compiler
