// Reads the options of lockstep-compiler from its command line, the environment, and the folder that it is in.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::compiler {

/// When a copy practises, of the time in which no cell comes: see CellCompiler::practise().
enum class Practice : uint8_t { never, on_idle_processors, always };

struct Options {
  bool version = false;                   // --version: describe this program
  bool prepare = false;                   // --prepare: only build the precompiled header
  int channel_fd = -1;                    // --channel-fd N: the session's channel
  std::string session_dir;                // --session-dir DIR: line tables name DIR/cells/cell_7.cpp
  std::vector<std::string> include_dirs;  // -I DIR
  int64_t memory_limit_mb = 0;            // --memory-limit MB: what one request may take; 0: no limit
  bool for_python_job = false;            // --python-job TORCH HEADERS: cells run in ranks of a Python job, with
                                          // the torch and the package's headers in these folders
  Practice practises = Practice::on_idle_processors;  // LOCKSTEP_PRACTICE on: always; off: never
  std::string libtorch;                   // folder with include/ and lib/ (protocol/installation.h); empty: none
  std::string libtorch_version;           // "2.11.0"
  std::string libtorch_problem;           // why there is none, as a sentence with the fix; empty when there is one
  std::string include_root;  // folder with worker/cell/cell.h: beside the installed program, or the source tree
  std::string resource_dir;  // clang's own headers: in the wheel lockstep-cells beside the program, else Debian's
  std::string home_dir;  // protocol::shared_home(): a precompiled header there is used, and never written
  std::string cache_dir;  // --cache-dir DIR; $XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep; empty: there is no home

  std::string cells_dir() const { return session_dir + "/cells"; }
};

/// Throws UsageError for errors of the command line. A missing LibTorch or header does not throw:
/// installation_problem() reports it.
Options read_options(int argc, char** argv);

/// Returns what is wrong with the installation that `options` names, as a sentence with the fix; empty if nothing is.
std::string installation_problem(const Options& options);

/// Returns "clang 19.1.7".
std::string compiler_version();

}  // namespace lockstep::compiler
