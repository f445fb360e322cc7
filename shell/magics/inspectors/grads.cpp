// %grads checks the gradients. It is a cell that calls inspect::grads on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"

namespace lockstep::shell {
namespace {

constexpr InspectorOption kGradsOptions[] = {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_ROW
#include "inspectors/options/grads.def"
};

CellOutcome grads(MagicCall& call) {
  const MagicArguments& given = call.given;
  const std::vector<std::string>& words = given.words();
  const auto watch = given.value("--watch");
  const bool local = given.has("--local");
  if (words.empty() && watch != "off")
    throw UsageError("%grads needs whose gradients: %grads net; %grads? has its help");
  if (watch && (local || given.has("--threshold") || given.has("--factor")))
    throw UsageError("--watch turns the observer on or off; compare in a line of its own: %grads EXPR");
  if (given.has("--threshold") && !local) throw UsageError("--threshold is for outliers, which --local looks for");
  if (given.has("--factor") && local)
    throw UsageError("--factor is of what the reduction made of gradients, which --local does not look at");

  const CellSettings settings = inspector_settings(call, given.value("--ranks"));
  const std::string options = cxx_options(given, kGradsOptions) + cxx_ranks_option(given, settings);
  std::string code;
  for (const std::string& word : words) {
    if (watch == "on")
      code += fmt::format("__lockstep::keep_grad_watch({1}, __lockstep::watch_grads({0})); ", word, quoted(word));
    else if (watch == "off")
      code += fmt::format("__lockstep::end_grad_watch({}); ", quoted(word));
    else
      code +=
          fmt::format("__lockstep::grads({0}, __lockstep::GradsOptions().name({1}){2}); ", word, quoted(word), options);
  }
  if (words.empty()) code = "__lockstep::end_grad_watch(\"\");";
  const CodeResult result = call.session.run_code(code, settings, call.line);
  if (watch == "on" && result.status == CellStatus::ok)
    call.session.message(fmt::format("what backward leaves in {} is seen before it is reduced; --watch off ends that",
                                     words.size() == 1 ? words[0] : "these"));
  return {.status = result.status, .findings = {}};
}

MagicDescription grads_arguments() {
  MagicDescription description =
      with_options_and_ranks({{"[EXPR...]", "modules, wrappers, optimizers, tensors"}}, kGradsOptions);
  description.emplace_back("--watch on|off",
                           "see what backward leaves from now on, before it is reduced: then %grads knows whether "
                           "gradients are the mean, who brought a NaN in, what was not reduced, what does not change; "
                           "off ends that, and shows its cost");
  return description;
}

const RegisterMagic kGrads(
    {.name = "grads",
     .summary = "are the gradients right? Equal on all ranks, finite, the mean of the ranks' own; --local: before that",
     .help = "On all live ranks, between backward and zero_grad.",
     .takes = grads_arguments(),
     .line = grads,
     .job_line = [](MagicCall& call) { return run_package_inspector(call, "grads", kGradsOptions); },
     .job_takes = package_arguments(kGradsOptions)});

}  // namespace
}  // namespace lockstep::shell
