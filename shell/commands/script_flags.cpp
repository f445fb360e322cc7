#include "shell/commands/script_flags.h"

#include "protocol/error.h"

namespace lockstep::shell {

void add_script_options(CLI::App& app, RunOptions& options) {
  app.add_option("--json", options.json, "Write events as JSON lines to this file; - is the standard output");
  app.add_option("--junit", options.junit, "Write a report for build servers: JUnit's XML, a case for each cell")
      ->type_name("FILE");
  app.add_option("--write", options.write, "Of a notebook: store its outputs in this notebook, which may be the same")
      ->type_name("FILE");
  app.add_flag("--show-code", options.show_code, "Show the code of each cell, not its first line alone");
  app.add_flag("--answers", options.answers, "Show the answers in markdown cells (<details>), which are folded away");
  app.add_flag("--keep-going", options.keep_going, "Go on after a cell that failed or brought a fault");
}

void check_script_options(const RunOptions& options) {
  if (!options.write.empty() && (options.files.size() != 1 || !options.files[0].ends_with(".ipynb")))
    throw UsageError("--write stores the outputs of one notebook: FILE.ipynb --write FILE.ipynb");
}

}  // namespace lockstep::shell
