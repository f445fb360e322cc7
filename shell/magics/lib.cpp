// %lib loads a shared library, with its headers, for later cells.
#include <filesystem>

#include "protocol/error.h"
#include "shell/scripts/library_includes.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

/// A path, where LIBRARY is one or names a file in the working directory; otherwise a name for the dynamic loader.
std::string find_library(const std::string& directory, const std::string& word) {
  std::error_code error;
  const bool is_file_name = word.find(".so") != std::string::npos;
  const std::string file = is_file_name || word.find('/') != std::string::npos ? word : "lib" + word + ".so";
  const fs::path path = (fs::path(directory) / file).lexically_normal();
  if (fs::is_regular_file(path, error)) return path.string();
  if (file.find('/') == std::string::npos) return file;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path.parent_path(), error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  throw UsageError("there is no library " + path.string() + did_you_mean(path.filename().string(), names));
}

CellOutcome lib(MagicCall& call) {
  const std::vector<std::string>& words = call.given.words();
  const std::string library = find_library(call.session.directory(), words[0]);
  CellSettings settings;
  call.session.start();
  settings.ranks = call.session.live_ranks();
  const CodeResult loaded =
      call.session.run_code("__lockstep_load_library(R\"lockstep(" + library + ")lockstep\");", settings, call.line);
  if (loaded.status != CellStatus::ok || words.size() == 1) return {};
  call.session.run_code(library_includes({words.begin() + 1, words.end()}), settings, call.line);
  return {};
}

const RegisterMagic kLib({.name = "lib",
                          .summary = "loads a shared library on all ranks, and includes its headers",
                          .help = "LIBRARY is a path (./build/libops.so), or a name (ops, libops.so.1) that is looked "
                                  "for in the working directory\n"
                                  "and then by the dynamic loader. HEADER is what #include takes: ops.h, <zlib.h>; -I "
                                  "adds folders. It is the library's,\n"
                                  "with all that it includes: later cells use what it declares and the library "
                                  "defines. Ranks that start later\n"
                                  "load the library when %lib runs again; a new build of it needs %dist_reset.",
                          .takes = {"LIBRARY", "[HEADER...]"},
                          .line = lib});

}  // namespace
}  // namespace lockstep::shell
