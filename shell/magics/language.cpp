// %%py, %py, %%cpp and %cpp choose the language of a cell.
#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome py_line(MagicCall& call) {
  const CodeResult result = call.session.run_python(call.arguments, {}, call.line);
  return {.status = result.status, .findings = {}};
}

void py_cell(MagicCall& call, CellSettings& settings) {
  if (!call.session.options().has_python_ranks())
    throw UsageError("Python cells run where the ranks are Python: lockstep --python, or lockstep attach");
  settings.language = Language::python;
}

void cpp_cell(MagicCall&, CellSettings& settings) { settings.language = Language::cpp; }

CellOutcome cpp_line(MagicCall& call) {
  CellSettings settings;
  settings.language = Language::cpp;
  const CodeResult result = call.session.run_code(call.arguments, settings, call.line);
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kPy({.name = "py",
                         .summary = "Python, where the ranks are Python",
                         .help = "In a session in the module __main__ of each rank, at a prompt over a job in the "
                                 "selected frame (%where). Cells are Python there anyway.",
                         .takes = {"CODE"},
                         .line = py_line,
                         .cell = py_cell,
                         .verbatim = true,
                         .only_with_python = true,
                         .language = Language::python});

const RegisterMagic kCpp({.name = "cpp",
                          .summary = "C++, where the ranks are Python",
                          .help = "Compiled for the torch of the job. py::tensor(\"model.weight\") is a tensor of the "
                                  "program. Cells of sessions are C++ anyway.",
                          .takes = {"CODE"},
                          .line = cpp_line,
                          .cell = cpp_cell,
                          .verbatim = true,
                          .only_with_python = true,
                          .language = Language::cpp});

}  // namespace
}  // namespace lockstep::shell
