// %diagnose: everything that applies, for someone who does not know where to look. A cell that runs an
// inspect::Examination on all live ranks.
#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kDiagnoseUsage = "%diagnose [EXPR...] [--ranks SPEC]";

CellOutcome diagnose(MagicCall& call) {
  MagicArguments arguments(call.arguments, kDiagnoseUsage);
  const auto spec = arguments.take_value("", "--ranks");
  const std::vector<std::string> words = arguments.rest();
  const CellSettings settings = inspector_settings(call, spec);
  std::string code = "__lockstep::Examination()";
  for (const std::string& word : words) code += ".add(" + cxx_string(word) + ", " + word + ")";
  const std::string options = spec ? "__lockstep::DiagnoseOptions().ranks(" + cxx_ranks(*settings.ranks) + ")" : "";
  return run_inspector(call, code + ".run(" + options + ")", settings, /*shows=*/true);
}

const RegisterMagic kDiagnose(
    {.name = "diagnose",
     .usage = kDiagnoseUsage,
     .summary = "what is wrong? Every check that applies, the most probable cause first",
     .help = "Looks at each expression (a module: replicas, train or eval mode, gradients; an optimizer; a sampler; "
             "anything else:\nis it the same on every rank?) and always at ranks, generators and collectives. One "
             "table, and what to ask next.\nBest between backward and zero_grad: gradients are there then.\n"
             "--ranks SPEC   these ranks only",
     .line = diagnose,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
