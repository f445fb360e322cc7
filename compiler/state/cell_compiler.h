// One state of a session's compiler: everything that cells so far have declared. Compiling a cell changes it for ever,
// so it is done in a copy of the process, which takes over when the cell was right (state_process.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/process/options.h"
#include "protocol/compiler_messages.h"
#include "protocol/json_fields.h"

namespace lockstep::compiler {

/// What an attempt at a cell has found out for the next one.
struct Attempt {
  bool predict = true;
  bool capture_defaults = true;
  std::vector<std::pair<unsigned, unsigned>> clashes;  // item, raw place of the earlier definition
  std::vector<unsigned> captures;  // that can't be, at these places of the text
  int number = 0;
  int showing = 0;  // of the last value: as a ReadPlan has it
  std::string show_problem;  // why it is less than all
};
LOCKSTEP_JSON(Attempt, predict, capture_defaults, clashes, captures, number, showing, show_problem)

struct CellResult {
  protocol::Compiled compiled;
  std::vector<std::string> frames;    // objects
  std::optional<Attempt> again;       // not compiled, but the next attempt may
};

class CellCompiler {
 public:
  /// Reads the precompiled header. Throws StartError.
  CellCompiler(const Options& options, const std::string& header);
  ~CellCompiler();

  /// Makes the prelude's shared object from the header itself: code for the warm prelude. The process can't compile
  /// cells afterwards.
  std::string make_prelude();
  /// Every rank has loaded the shared object at `path`.
  void add_prelude(const std::string& path);

  /// Does once what the first cell would have to do: code generation hears of the header, and is initialised.
  void warm_up();

  CellResult compile(const protocol::Compile& request, const Attempt& attempt);
  void settle(const protocol::Settle& request);
  void forget(const protocol::Forget& request);
  protocol::Names list_names();
  /// These parse, too: the process can't be used for anything else afterwards.
  protocol::Completions complete(const protocol::Complete& request);
  protocol::Inspection inspect(const protocol::Inspect& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::compiler
