// %buckets: how a wrapper lays out its gradients, and when each bucket was ready and reduced.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kBucketsUsage = "%buckets EXPR";

CellOutcome buckets(MagicCall& call) {
  const auto expression = MagicArguments(call.arguments, kBucketsUsage).rest_word();
  if (!expression)
    throw UsageError(std::string("%buckets needs a DistributedDataParallel: %buckets net; usage: ") + kBucketsUsage);
  return run_inspector(call, fmt::format("__lockstep::buckets({}, {})", *expression, cxx_string(*expression)),
                       inspector_settings(call, std::nullopt), /*shows=*/true);
}

const RegisterMagic kBuckets(
    {.name = "buckets",
     .usage = kBucketsUsage,
     .summary = "DDP's buckets: parameters, bytes, when each was ready, how much of its reduction was hidden",
     .help = "EXPR: a DistributedDataParallel. Times are those of the last synchronised step.",
     .line = buckets,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
