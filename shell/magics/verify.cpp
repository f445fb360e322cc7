// %verify: are these the same on every rank? A cell that calls inspect::verify for each expression, on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/job_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kVerifyUsage =
    "%verify EXPR... [--method fingerprint|broadcast|all_gather|all_reduce] [--rtol R] [--atol A] [--every K] [--ranks "
    "SPEC]";

std::string method_of(const std::string& word) {
  if (word == "fingerprint") return "__lockstep::Method::kFingerprint";
  if (word == "broadcast") return "__lockstep::Method::kBroadcast";
  if (word == "all_gather") return "__lockstep::Method::kAllGather";
  if (word == "all_reduce") return "__lockstep::Method::kAllReduce";
  throw UsageError("'" + word + "' is no method; methods are fingerprint, broadcast, all_gather and all_reduce");
}

CellOutcome verify(MagicCall& call) {
  MagicArguments arguments(call.arguments, kVerifyUsage);
  const auto method = arguments.take_value("", "--method");
  const auto rtol = arguments.take_value("", "--rtol");
  const auto atol = arguments.take_value("", "--atol");
  const auto spec = arguments.take_value("", "--ranks");
  const auto every = arguments.take_value("", "--every");
  const bool files = arguments.take_flag("", "--files");
  const std::vector<std::string> words = arguments.rest();
  const bool ends = every == "0" || every == "off";
  if (words.empty() && !ends)
    throw UsageError(std::string("%verify needs what to compare: %verify net; usage: ") + kVerifyUsage);

  std::string options;
  if (method) options += ".method(" + method_of(*method) + ")";
  if (rtol) options += ".rtol(" + cxx_number(*rtol, "--rtol", 0, "a number that is not negative") + ")";
  if (atol) options += ".atol(" + cxx_number(*atol, "--atol", 0, "a number that is not negative") + ")";
  if ((rtol || atol) && (!method || *method != "all_gather"))
    throw UsageError("--rtol and --atol are for --method all_gather; the other methods compare bit by bit");

  CellSettings settings = inspector_settings(call, spec);
  std::string code;
  if (files) {
    if (every) throw UsageError("--files compares what is saved, once: it takes no --every");
    if (words.size() < 2) throw UsageError("--files needs two files or more: %verify --files rank0.pt rank1.pt");
    // One rank reads them all.
    settings.ranks = RankSet{settings.ranks->ranks().front()};
    for (const std::string& word : words) code += (code.empty() ? "" : ", ") + cxx_string(word);
    code = "__lockstep::verify_files({" + code + "}, __lockstep::VerifyOptions()" + options + ");";
  } else if (ends) {
    if (words.empty()) code = "__lockstep::end_watch(\"\");";
    for (const std::string& word : words) code += "__lockstep::end_watch(" + cxx_string(word) + "); ";
  } else if (every) {
    const int64_t steps = parse_count(*every, "--every");
    if (spec) options += ".ranks(" + cxx_ranks(*settings.ranks) + ")";
    for (const std::string& word : words)
      code += fmt::format(
          "__lockstep::keep_watch({1}, {2}, [] {{ return __lockstep::subject_of({0}, {1}); }}, "
          "__lockstep::VerifyOptions().name({1}){3}); ",
          word == "rng" ? "__lockstep::rng()" : word, cxx_string(word), steps, options);
  } else {
    if (spec) options += ".ranks(" + cxx_ranks(*settings.ranks) + ")";
    for (const std::string& word : words)
      code += fmt::format("__lockstep::verify({}, __lockstep::VerifyOptions().name({}){}); ",
                          word == "rng" ? "__lockstep::rng()" : word, cxx_string(word), options);
  }
  const CodeResult result = call.session.run_code(code, settings, call.line);
  if (every && !ends && result.status == CellStatus::ok)
    call.session.message(fmt::format("{} compared each {} from now on; %verify {} --every 0 ends it",
                                     words.size() == 1 ? words[0] + " is" : "these are",
                                     *every == "1" ? "step" : *every + " steps", words[0]));
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kVerify(
    {.name = "verify",
     .usage = kVerifyUsage,
     .summary = "are these the same on every rank? Modules, optimizers, tensors, containers, values, rng",
     .help =
         "Bit by bit; on all live ranks (%rank does not change that). What differs is a finding: which ranks, which "
         "tensors, how "
         "many elements, where, how far apart.\n"
         "rng                    the random number generators\n"
         "--method broadcast     compare all bytes with the lowest rank's\n"
         "--method all_gather    allclose, with --rtol R and --atol A\n"
         "--method all_reduce    by one all_reduce of the default group on the tensors' device\n"
         "--every K              from now on, each K training steps, while cells run; --every 0 ends it, and shows "
         "its\n"
         "                       cost; --every off without names ends all\n"
         "--ranks SPEC           these ranks only\n"
         "--files rank0.pt ...   saved replicas: of torch::save, Python's torch.save, safetensors or "
         "torch.distributed.checkpoint (its folder);\n"
         "                       without a session: lockstep verify",
     .line = verify,
     .cell = {},
     .job_line = [](MagicCall& call) {
       return run_package_inspector(
           call, "verify",
           {{"method", PythonOption::text}, {"rtol", PythonOption::number}, {"atol", PythonOption::number}});
     }});

}  // namespace
}  // namespace lockstep::shell
