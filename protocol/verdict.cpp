#include "protocol/verdict.h"

#include <cstddef>
#include <iterator>

namespace lockstep {
namespace {

// In the order of the enumerators.
constexpr std::string_view kVerdict[] = {
    "ok",   "mismatch",      "missing",        "shape_mismatch", "dtype_mismatch", "order_mismatch", "op_mismatch",
    "nan",  "inf",           "outlier",        "unused",         "stale",          "hang",           "straggler",
    "dead", "diverged_seed", "duplicate_data", "uneven_data",    "unsupported"};
constexpr std::string_view kFindingKind[] = {"call",        "parameter",
                                             "buffer",      "mode",
                                             "state",       "hyperparameter",
                                             "tensor",      "rng",
                                             "value",       "attribute",
                                             "record",      "storage",
                                             "unsupported", "gradient",
                                             "reduction",   "micro_batch",
                                             "order",       "sample",
                                             "epoch",       "batch",
                                             "size",        "index",
                                             "repeat",      "rank",
                                             "local_rank",  "device",
                                             "environment", "version",
                                             "code",        "setting",
                                             "update",      "computation",
                                             "overflow",    "in_flight",
                                             "count",       "input",
                                             "forward",     "backward",
                                             "optimizer",   "finished",
                                             "threw",       "stopped",
                                             "not_in_cell", "left_group",
                                             "died",        "other_collective",
                                             "tag",         "outside_group",
                                             "unknown",     "idle",
                                             "computing",   "collective",
                                             "sleeping",    "lock",
                                             "condition",   "loading_data",
                                             "reading",     "polling",
                                             "child",       "blocked",
                                             "stream",      "communicator"};

static_assert(std::size(kVerdict) == static_cast<size_t>(Verdict::unsupported) + 1);
static_assert(std::size(kFindingKind) == static_cast<size_t>(FindingKind::communicator) + 1);

}  // namespace

std::string_view to_string(Verdict verdict) { return kVerdict[static_cast<size_t>(verdict)]; }
std::string_view to_string(FindingKind kind) { return kFindingKind[static_cast<size_t>(kind)]; }

}  // namespace lockstep
