// %grads: are the gradients right? A cell that calls inspect::grads, on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/job_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kGradsUsage = "%grads EXPR... [--local] [--threshold Z] [--factor F] [--ranks SPEC] [--watch on|off]";

CellOutcome grads(MagicCall& call) {
  MagicArguments arguments(call.arguments, kGradsUsage);
  const bool local = arguments.take_flag("", "--local");
  const auto threshold = arguments.take_value("", "--threshold");
  const auto factor = arguments.take_value("", "--factor");
  const auto spec = arguments.take_value("", "--ranks");
  const auto watch = arguments.take_value("", "--watch");
  const std::vector<std::string> words = arguments.rest();
  if (watch && *watch != "on" && *watch != "off") throw UsageError("--watch takes on or off, not '" + *watch + "'");
  if (words.empty() && watch != "off")
    throw UsageError(std::string("%grads needs whose gradients: %grads net; usage: ") + kGradsUsage);
  if (watch && (local || threshold || factor))
    throw UsageError("--watch turns the observer on or off; compare in a line of its own: %grads EXPR");
  if (threshold && !local) throw UsageError("--threshold is for outliers, which --local looks for");
  if (factor && local)
    throw UsageError("--factor is of what the reduction made of gradients, which --local does not look at");

  std::string options;
  if (local) options += ".local(true)";
  if (threshold) options += ".threshold(" + cxx_number(*threshold, "--threshold", 1.001, "a number above 1") + ")";
  if (factor) options += ".factor(" + cxx_number(*factor, "--factor", 1e-300, "a number above 0") + ")";
  CellSettings settings = inspector_settings(call, spec);
  if (spec && !watch) options += ".ranks(" + cxx_ranks(*settings.ranks) + ")";
  std::string code;
  for (const std::string& word : words) {
    if (watch == "on")
      code += fmt::format("__lockstep::keep_grad_watch({1}, __lockstep::watch_grads({0})); ", word, cxx_string(word));
    else if (watch == "off")
      code += fmt::format("__lockstep::end_grad_watch({}); ", cxx_string(word));
    else
      code += fmt::format("__lockstep::grads({0}, __lockstep::GradsOptions().name({1}){2}); ", word, cxx_string(word),
                          options);
  }
  if (words.empty()) code = "__lockstep::end_grad_watch(\"\");";
  const CodeResult result = call.session.run_code(code, settings, call.line);
  if (watch == "on" && result.status == CellStatus::ok)
    call.session.message(fmt::format("what backward leaves in {} is seen before it is reduced; --watch off ends that",
                                     words.size() == 1 ? words[0] : "these"));
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kGrads(
    {.name = "grads",
     .usage = kGradsUsage,
     .summary = "are the gradients right? Equal on all ranks, finite, the mean of the ranks' own; --local: before that",
     .help =
         "Of modules, wrappers, optimizers, tensors; on all live ranks, between backward and zero_grad.\n"
         "--local        what each rank's backward left, not yet reduced: missing, NaN, Inf, zero, outliers\n"
         "--threshold Z  how unlike the others an outlier is: deviations from the median with four ranks or more,\n"
         "               else how many times larger or smaller (10)\n"
         "--factor F     gradients are meant to be F times the mean of the ranks' own: the program scales them since\n"
         "--watch on     see what backward leaves from now on, before it is reduced: then %grads knows whether "
         "gradients\n"
         "               are the mean, who brought a NaN in, what was not reduced, what does not change\n"
         "--watch off    ends that, and shows its cost\n"
         "--ranks SPEC   these ranks only",
     .line = grads,
     .cell = {},
     .job_line = [](MagicCall& call) {
       return run_package_inspector(
           call, "grads",
           {{"local", PythonOption::flag}, {"threshold", PythonOption::number}, {"factor", PythonOption::number}});
     }});

}  // namespace
}  // namespace lockstep::shell
