// %ranks: do the ranks agree on who they are? A cell that calls inspect::ranks on all live ranks.
#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/job_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kRanksUsage = "%ranks [--ranks SPEC]";

CellOutcome ranks(MagicCall& call) {
  MagicArguments arguments(call.arguments, kRanksUsage);
  const auto spec = arguments.take_value("", "--ranks");
  if (!arguments.rest().empty()) throw UsageError(std::string("%ranks takes no words; usage: ") + kRanksUsage);
  const CellSettings settings = inspector_settings(call, spec);
  const std::string options = spec ? "__lockstep::RanksOptions().ranks(" + cxx_ranks(*settings.ranks) + ")" : "";
  return run_inspector(call, "__lockstep::ranks(" + options + ")", settings, /*shows=*/true);
}

const RegisterMagic kRanks({.name = "ranks",
                            .usage = kRanksUsage,
                            .summary = "do ranks agree on who they are: numbers, devices, environment, versions, code",
                            .help = "A row for each rank, and a finding for what they do not agree on.\n"
                                    "--ranks SPEC   these ranks only",
                            .line = ranks,
                            .cell = {},
                            .job_line = [](MagicCall& call) {
                              return run_package_inspector(call, "ranks", {}, /*expressions=*/false);
                            }});

}  // namespace
}  // namespace lockstep::shell
