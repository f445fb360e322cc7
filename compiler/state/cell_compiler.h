// One state of a session's compiler: everything that cells so far have declared. Compiling a cell changes it
// permanently, so each cell is compiled in a copy of the process, which becomes the current state if the cell compiles
// (state_process.h).
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/process/options.h"
#include "protocol/compiler_messages.h"
#include "protocol/json_fields.h"

namespace lockstep::compiler {

/// Holds what an attempt to compile a cell has learnt for the next attempt.
struct Attempt {
  bool predict = true;
  bool capture_defaults = true;
  std::vector<std::pair<unsigned, unsigned>> clashes;  // item, raw encoding of the earlier definition's location
  std::vector<unsigned> captures;  // that clang rejected, as offsets in the text
  std::set<std::string> headers;  // to read again as a library's
  int number = 0;
  int showing = 0;  // how much of the last value: ReadPlan::Showing
  std::string show_problem;  // why not all of it
};
LOCKSTEP_JSON(Attempt, predict, capture_defaults, clashes, captures, headers, number, showing, show_problem)

struct CellResult {
  protocol::Compiled compiled;
  std::vector<std::string> frames;  // shared objects
  std::optional<Attempt> again;  // set where the cell did not compile, but may with this attempt
};

class CellCompiler {
 public:
  /// Reads the precompiled header. Throws StartError.
  CellCompiler(const Options& options, const std::string& header);
  ~CellCompiler();

  /// Compiles the prelude's shared object: the functions that worker/cell/warm_prelude.h lists. The process can't
  /// compile cells afterwards.
  std::string make_prelude();
  /// Returns the text of the file for add_library_names(). The process can't compile cells afterwards.
  std::string make_library_names();
  /// Lets completion find the header's names in the file at `path`. Without it, it reads them from the header.
  void add_library_names(const std::string& path);
  /// Notes that every rank has loaded the shared object at `path`.
  void add_prelude(const std::string& path);

  /// Does what would otherwise delay the first cell: initialises code generation, and passes the header to it.
  void warm_up();
  /// Compiles the text of compiler/state/practice.h and drops the code. Clang reads the specializations of a template when
  /// one is needed first, all that the precompiled header has: a first cell with a module takes ten times as long as the
  /// next. Returns false if it does not compile, because of what cells have declared: the process can't be used for
  /// anything else afterwards.
  bool practise();

  CellResult compile(const protocol::Compile& request, const Attempt& attempt);
  void settle(const protocol::Settle& request);
  void forget(const protocol::Forget& request);
  protocol::Names list_names();
  /// Completion and inspection parse, too: the process can't be used for anything else afterwards.
  protocol::Completions complete(const protocol::Complete& request);
  protocol::Inspection inspect(const protocol::Inspect& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::compiler
