// %diagnose runs everything that applies, for someone who does not know where to look. It is a cell that runs an
// inspect::Examination on all live ranks.
#include "shell/magics/inspectors/inspector_magic.h"

namespace lockstep::shell {
namespace {

CellOutcome diagnose(MagicCall& call) {
  const CellSettings settings = inspector_settings(call, call.given.value("--ranks"));
  std::string code = "__lockstep::Examination()";
  for (const std::string& word : call.given.words()) code += ".add(" + quoted(word) + ", " + word + ")";
  code += ".run(__lockstep::DiagnoseOptions()" + cxx_ranks_option(call.given, settings) + ")";
  return run_inspector(call, code, settings, /*shows=*/true);
}

const RegisterMagic kDiagnose(
    {.name = "diagnose",
     .summary = "what is wrong? Every check that applies, the most probable cause first",
     .help = "Looks at each expression, and always at ranks, generators and collectives. One table, and what to ask "
             "next.\nBest between backward and zero_grad: gradients are there then.",
     .takes = with_options_and_ranks({{"[EXPR...]",
                                       "a module: replicas, train or eval mode, gradients; an optimizer; a sampler; "
                                       "anything else: is it the same on every rank?"}}),
     .line = diagnose});

}  // namespace
}  // namespace lockstep::shell
