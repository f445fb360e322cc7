// %nan and %%nan find where the first NaN or Inf comes from.
#include <fmt/format.h>

#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"
#include "shell/magics/inspectors/object_list.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome nan_line(MagicCall& call) {
  const std::string word = *call.given.word();
  CellSettings settings;
  call.session.start();
  settings.ranks = call.session.cell_ranks();
  std::string code;
  if (word == "on") {
    code = "__lockstep::nan_on(" + object_list(call.session, *settings.ranks, "__lockstep::NameList") + ");";
    // Cells define modules after that, and give names other ones.
    call.session.settings().before_each_cell = [&session = call.session](const RankSet& ranks) {
      return "__lockstep::nan_names(" + object_list(session, ranks, "__lockstep::NameList") + ");";
    };
  } else if (word == "off") {
    call.session.settings().before_each_cell = nullptr;
    code = "__lockstep::nan_off();";
  } else {
    code = "std::cout << __lockstep::nan_status() << '\\n';";
  }
  const CodeResult result = call.session.run_code(code, settings, call.line);
  return {.status = result.status, .findings = {}};
}

void nan_cell(MagicCall& call, CellSettings& settings) {
  settings.before = "__lockstep::begin_nan_trace();";
  settings.after = [&session = call.session](const CellSettings& ran, const CellEnd& end) {
    if (!end.began) return std::string("__lockstep::drop_nan_trace();");
    return fmt::format("__lockstep::end_nan_trace({}, __lockstep::NanOptions().ranks({}));",
                       object_list(session, *ran.ranks, "__lockstep::NameList"), cxx_ranks(*ran.ranks));
  };
}

const RegisterMagic kNan(
    {.name = "nan",
     .summary = "where did the first NaN or Inf come from?",
     .help =
         "%nan on     watches, at little cost, losses, gradients (before they are reduced) and updated parameters\n"
         "%nan off    ends that; %nan status says what it has seen\n"
         "%%nan       traces this cell operator by operator, on its ranks, and names the one that made the first\n"
         "            bad value which reached a result. Masked ones, and those that were asked for, are no findings",
     .takes = {"on|off|status"},
     .line = nan_line,
     .cell = nan_cell,
     .job_line = nan_of_job,
     .job_takes = MagicDescription{"on|off|status", "[EXPR...]"}});

}  // namespace
}  // namespace lockstep::shell
