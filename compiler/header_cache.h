// The precompiled header of cells and the prelude's shared object, built once per installation and shared by all
// sessions of a user.
//
// They lie in CACHE/pch/KEY/; the key names everything that they depend on: compiler, LibTorch, flags, the headers'
// text. A folder appears under its name only when all of it is there. Two sessions that start at once: one builds, the
// other waits for the lock (which ends with its holder).
//
// Headers that no session has used for a month are removed when a new one is built.
#pragma once
#include <functional>
#include <string>

#include "compiler/options.h"

namespace lockstep::compiler {

struct HeaderFiles {
  std::string precompiled;
  std::string prelude;
};

/// Sixteen hexadecimal digits.
std::string header_key(const Options& options);

/// Where the files lie, or will.
std::string header_folder(const Options& options);

/// Does the folder hold what was put into it? Told by sizes and times.
bool is_whole(const std::string& folder);

/// The header could not be read in spite of that: it is built again the next time.
void discard_header(const HeaderFiles& files);

/// The files, built if need be (some 25 s; `progress` is told). A damaged folder is built again. It is built in a
/// child of this process. Throws StartError: no writable cache, no space, headers that do not compile.
HeaderFiles provide_header(const Options& options, const std::function<void(const std::string&)>& progress);

}  // namespace lockstep::compiler
