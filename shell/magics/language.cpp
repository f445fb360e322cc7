// %%py, %py, %%cpp and %cpp: the language of a cell.
#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome py_line(MagicCall& call) {
  if (call.arguments.empty()) throw UsageError("%py needs code: %py CODE; %%py makes a Python cell");
  const CodeResult result = call.session.run_python(call.arguments, {}, call.line);
  return {.status = result.status, .findings = {}};
}

void py_cell(MagicCall& call, CellSettings& settings) {
  if (!call.arguments.empty()) throw UsageError("%%py takes nothing: the code stands in the lines below");
  if (!call.session.options.job)
    throw UsageError("Python cells run at a prompt over a Python job: lockstep attach (docs/python.md)");
  settings.language = Language::python;
}

void cpp_cell(MagicCall& call, CellSettings& settings) {
  if (!call.arguments.empty()) throw UsageError("%%cpp takes nothing: the code stands in the lines below");
  settings.language = Language::cpp;
}

CellOutcome cpp_line(MagicCall& call) {
  if (call.arguments.empty()) throw UsageError("%cpp needs code: %cpp CODE; %%cpp makes a C++ cell");
  CellSettings settings;
  settings.language = Language::cpp;
  const CodeResult result = call.session.run_code(call.arguments, settings, call.line);
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kPy({.name = "py",
                         .usage = "%py CODE, %%py",
                         .summary = "Python, at a prompt over a Python job",
                         .help = "Runs in the selected frame (%where) of each rank. At such a prompt cells are Python "
                                 "anyway.",
                         .line = py_line,
                         .cell = py_cell,
                         .only_in_jobs = true,
                         .language = Language::python});

const RegisterMagic kCpp({.name = "cpp",
                          .usage = "%cpp CODE, %%cpp",
                          .summary = "C++, at a prompt over a Python job",
                          .help = "Compiled for the torch of the job. py::tensor(\"model.weight\") is a tensor of the "
                                  "program. Cells of sessions are C++ anyway.",
                          .line = cpp_line,
                          .cell = cpp_cell,
                          .only_in_jobs = true,
                          .language = Language::cpp});

}  // namespace
}  // namespace lockstep::shell
