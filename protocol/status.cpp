#include "protocol/status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>

#include "protocol/verdict.h"

namespace lockstep {
namespace {

// Has the order of the enumerators.
constexpr std::string_view kCellStatus[] = {"ok",      "error",   "compile_error", "usage_error", "interrupted",
                                            "aborted", "timeout", "dead",          "waiting"};
constexpr std::string_view kRankState[] = {"starting", "idle",       "loading", "running",
                                           "waiting",  "regrouping", "ending",  "dead"};
constexpr std::string_view kStream[] = {"stdout", "stderr"};
constexpr std::string_view kCompileStatus[] = {"ok", "error", "timeout", "crash", "cancelled"};
constexpr std::string_view kDiagnosticSeverity[] = {"error", "warning", "note"};
constexpr std::string_view kTextStatus[] = {"complete", "incomplete", "invalid"};
constexpr std::string_view kLoopState[] = {"running", "completed", "stopped"};
constexpr std::string_view kSeverity[] = {"note", "fault"};
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

constexpr std::span<const std::string_view> words(CellStatus) { return kCellStatus; }
constexpr std::span<const std::string_view> words(RankState) { return kRankState; }
constexpr std::span<const std::string_view> words(Stream) { return kStream; }
constexpr std::span<const std::string_view> words(CompileStatus) { return kCompileStatus; }
constexpr std::span<const std::string_view> words(DiagnosticSeverity) { return kDiagnosticSeverity; }
constexpr std::span<const std::string_view> words(TextStatus) { return kTextStatus; }
constexpr std::span<const std::string_view> words(LoopState) { return kLoopState; }
constexpr std::span<const std::string_view> words(Severity) { return kSeverity; }
constexpr std::span<const std::string_view> words(Verdict) { return kVerdict; }
constexpr std::span<const std::string_view> words(FindingKind) { return kFindingKind; }

static_assert(words(CellStatus()).size() == static_cast<size_t>(CellStatus::waiting) + 1);
static_assert(words(RankState()).size() == static_cast<size_t>(RankState::dead) + 1);
static_assert(words(Stream()).size() == static_cast<size_t>(Stream::standard_error) + 1);
static_assert(words(CompileStatus()).size() == static_cast<size_t>(CompileStatus::cancelled) + 1);
static_assert(words(DiagnosticSeverity()).size() == static_cast<size_t>(DiagnosticSeverity::note) + 1);
static_assert(words(TextStatus()).size() == static_cast<size_t>(TextStatus::invalid) + 1);
static_assert(words(LoopState()).size() == static_cast<size_t>(LoopState::stopped) + 1);
static_assert(words(Severity()).size() == static_cast<size_t>(Severity::fault) + 1);
static_assert(words(Verdict()).size() == static_cast<size_t>(Verdict::unsupported) + 1);
static_assert(words(FindingKind()).size() == static_cast<size_t>(FindingKind::communicator) + 1);

}  // namespace

template <typename T, typename>
std::string_view to_string(T value) {
  return words(T())[static_cast<size_t>(value)];
}

template <typename T, typename>
T from_string(std::string_view word) {
  const auto known = words(T());
  const auto found = std::find(known.begin(), known.end(), word);
  if (found == known.end())
    throw nlohmann::json::other_error::create(501, "'" + std::string(word) + "' is not a known word", nullptr);
  return static_cast<T>(found - known.begin());
}

template <typename T, typename>
void to_json(nlohmann::json& json, T value) {
  json = std::string(to_string(value));
}

template <typename T, typename>
void from_json(const nlohmann::json& json, T& value) {
  value = from_string<T>(json.get_ref<const std::string&>());
}

template <typename T, typename>
std::ostream& operator<<(std::ostream& stream, T value) {
  return stream << to_string(value);
}

#define LOCKSTEP_STATUS(T)                            \
  template std::string_view to_string(T);             \
  template T from_string(std::string_view);           \
  template void to_json(nlohmann::json&, T);          \
  template void from_json(const nlohmann::json&, T&); \
  template std::ostream& operator<<(std::ostream&, T);

LOCKSTEP_STATUS(CellStatus)
LOCKSTEP_STATUS(RankState)
LOCKSTEP_STATUS(Stream)
LOCKSTEP_STATUS(CompileStatus)
LOCKSTEP_STATUS(DiagnosticSeverity)
LOCKSTEP_STATUS(TextStatus)
LOCKSTEP_STATUS(LoopState)
LOCKSTEP_STATUS(Severity)
LOCKSTEP_STATUS(Verdict)
LOCKSTEP_STATUS(FindingKind)
#undef LOCKSTEP_STATUS

}  // namespace lockstep
