// %verify compares these between ranks. It is a cell that calls inspect::verify for each expression on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

constexpr InspectorOption kVerifyOptions[] = {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_ROW
#include "inspectors/options/verify.def"
};

CellOutcome verify(MagicCall& call) {
  const MagicArguments& given = call.given;
  const std::vector<std::string>& words = given.words();
  const auto every = given.value("--every");
  const bool ends = every == "0" || every == "off";
  if (words.empty() && !ends) throw UsageError("%verify needs what to compare: %verify net; %verify? has its help");
  if ((given.has("--rtol") || given.has("--atol")) && given.value("--method") != "all_gather")
    throw UsageError("--rtol and --atol are for --method all_gather; the other methods compare bit by bit");

  CellSettings settings = inspector_settings(call, given.value("--ranks"));
  std::string options = cxx_options(given, kVerifyOptions);
  std::string code;
  if (given.has("--files")) {
    if (words.size() < 2) throw UsageError("--files needs two files or more: %verify --files rank0.pt rank1.pt");
    // One rank reads them all.
    settings.ranks = RankSet{settings.ranks->ranks().front()};
    for (const std::string& word : words) code += (code.empty() ? "" : ", ") + quoted(word);
    code = "__lockstep::verify_files({" + code + "}, __lockstep::VerifyOptions()" + options + ");";
  } else if (ends) {
    if (words.empty()) code = "__lockstep::end_watch(\"\");";
    for (const std::string& word : words) code += "__lockstep::end_watch(" + quoted(word) + "); ";
  } else if (every) {
    const int64_t steps = parse_count(*every, "--every");
    options += cxx_ranks_option(given, settings);
    for (const std::string& word : words)
      code += fmt::format(
          "__lockstep::keep_watch({1}, {2}, [] {{ return __lockstep::subject_of({0}, {1}); }}, "
          "__lockstep::VerifyOptions().name({1}){3}); ",
          word == "rng" ? "__lockstep::rng()" : word, quoted(word), steps, options);
  } else {
    options += cxx_ranks_option(given, settings);
    for (const std::string& word : words)
      code += fmt::format("__lockstep::verify({}, __lockstep::VerifyOptions().name({}){}); ",
                          word == "rng" ? "__lockstep::rng()" : word, quoted(word), options);
  }
  const CodeResult result = call.session.run_code(code, settings, call.line);
  if (every && !ends && result.status == CellStatus::ok)
    call.session.message(fmt::format("{} compared each {} from now on; %verify {} --every 0 ends it",
                                     words.size() == 1 ? words[0] + " is" : "these are",
                                     *every == "1" ? "step" : *every + " steps", words[0]));
  return {.status = result.status, .findings = {}};
}

MagicDescription verify_arguments() {
  MagicDescription description = with_options_and_ranks(
      {{"[EXPR...]", "modules, optimizers, tensors, containers, values, or rng, the random number generators"}},
      kVerifyOptions);
  description.emplace_back("--every K",
                           "from now on, each K training steps, while cells run; --every 0 ends it, and shows its "
                           "cost; --every off without names ends all");
  description.emplace_back("|--files",
                           "compare saved replicas, rank0.pt rank1.pt ...: of torch::save, Python's torch.save, "
                           "safetensors or torch.distributed.checkpoint (its folder); without a session: lockstep "
                           "verify");
  return description;
}

const RegisterMagic kVerify(
    {.name = "verify",
     .summary = "are these the same on every rank? Modules, optimizers, tensors, containers, values, rng",
     .help = "Bit by bit; on all live ranks (%rank does not change that). What differs is a finding: which ranks, "
             "which tensors,\nhow many elements, where, how far apart.",
     .takes = verify_arguments(),
     .line = verify,
     .job_line = [](MagicCall& call) { return run_package_inspector(call, "verify", kVerifyOptions); },
     .job_takes = package_arguments(kVerifyOptions)});

}  // namespace
}  // namespace lockstep::shell
