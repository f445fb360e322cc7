// %buckets shows how a wrapper lays out its gradients, and when each bucket was ready and reduced.
#include <fmt/format.h>

#include "shell/magics/inspectors/inspector_magic.h"

namespace lockstep::shell {
namespace {

CellOutcome buckets(MagicCall& call) {
  const std::string expression = *call.given.word();
  return run_inspector(call, fmt::format("__lockstep::buckets({}, {})", expression, quoted(expression)),
                       inspector_settings(call), /*shows=*/true);
}

const RegisterMagic kBuckets(
    {.name = "buckets",
     .summary = "DDP's buckets: parameters, bytes, when each was ready, how much of its reduction was hidden",
     .help = "Times are those of the last synchronised step.",
     .takes = {{"EXPR", "a DistributedDataParallel"}},
     .line = buckets});

}  // namespace
}  // namespace lockstep::shell
