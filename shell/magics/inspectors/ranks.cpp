// %ranks: do the ranks agree on who they are? A cell that calls inspect::ranks on all live ranks.
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"

namespace lockstep::shell {
namespace {

CellOutcome ranks(MagicCall& call) {
  const CellSettings settings = inspector_settings(call, call.given.value("--ranks"));
  const std::string options = cxx_ranks_option(call.given, settings);
  return run_inspector(call, "__lockstep::ranks(__lockstep::RanksOptions()" + options + ")", settings, /*shows=*/true);
}

const RegisterMagic kRanks({.name = "ranks",
                            .summary = "do ranks agree on who they are: numbers, devices, environment, versions, code",
                            .help = "A row for each rank, and a finding for what they do not agree on.",
                            .takes = with_options_and_ranks({}),
                            .line = ranks,
                            .job_line = [](MagicCall& call) { return run_package_inspector(call, "ranks", {}); }});

}  // namespace
}  // namespace lockstep::shell
