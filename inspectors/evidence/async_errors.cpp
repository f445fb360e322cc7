#include "inspectors/evidence/async_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "inspectors/evidence/json_value.h"

namespace lockstep::inspect {

std::string NcclResult::words() const {
  constexpr std::array kWords = {"",
                                 "error of a CUDA call",
                                 "system error",
                                 "internal error of NCCL",
                                 "invalid argument",
                                 "invalid usage",
                                 "remote error",
                                 "",
                                 "time-out"};
  if (value >= 0 && value < static_cast<int64_t>(kWords.size())) return kWords[static_cast<size_t>(value)];
  return fmt::format("unknown error {}", value);
}

std::string C10dError::words() const {
  constexpr std::array kWords = {"", "time-out", "communication error", "remote error"};
  if (value >= 0 && value < static_cast<int64_t>(kWords.size())) return kWords[static_cast<size_t>(value)];
  return fmt::format("unknown error {}", value);
}

Evidence read_async_errors(std::string_view text, const std::string& origin, ReadingLimit limit) {
  if (text.size() > kLargestErrorSequence)
    throw UnreadableEvidence(
        fmt::format("{} has {} bytes; up to {} are read", origin, text.size(), kLargestErrorSequence));
  Evidence evidence;
  evidence.source = EvidenceSource::async_error;
  evidence.origin = origin;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", origin, number);
    const nlohmann::json parsed = parse_json(line, where, limit);
    const JsonAt entry{parsed, where};
    const auto rank_of = [&](const char* name) {
      const int64_t rank = entry.at(name).integer();
      if (rank < -1 || rank > INT32_MAX) entry.at(name).fail("is no rank");
      return static_cast<int>(rank);
    };
    EvidenceError error;
    error.rank = rank_of("rank");
    error.group = entry.at("group").text();
    error.time_ns = entry.at("time_ns").integer();
    if (entry.find("peer")) error.peer = rank_of("peer");
    const std::string source = entry.at("source").text();
    const int64_t value = entry.at("error").integer();
    if (source == "nccl") {
      error.error = NcclResult{value}.words();
      error.remote = NcclResult{value}.remote();
    } else if (source == "c10d") {
      error.error = C10dError{value}.words();
      error.remote = C10dError{value}.remote();
    } else {
      entry.at("source").fail("is neither nccl nor c10d");
    }
    evidence.errors.push_back(std::move(error));
  }
  std::stable_sort(evidence.errors.begin(), evidence.errors.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return evidence;
}

std::vector<EvidenceError> all_errors(const std::vector<Evidence>& evidence) {
  std::vector<EvidenceError> errors;
  for (const Evidence& each : evidence) errors.insert(errors.end(), each.errors.begin(), each.errors.end());
  std::ranges::stable_sort(errors, {}, &EvidenceError::time_ns);
  return errors;
}

const EvidenceError* first_cause(const std::vector<EvidenceError>& errors) {
  std::map<std::pair<int, std::string>, std::vector<const EvidenceError*>> standing;
  for (const EvidenceError& each : errors) {
    auto& own = standing[{each.rank, each.group}];
    if (each.error.empty())
      own.clear();  // a new communicator
    else
      own.push_back(&each);
  }
  const EvidenceError* cause = nullptr;
  const auto earlier = [](const EvidenceError& a, const EvidenceError& b) {
    return a.remote != b.remote ? b.remote : a.time_ns < b.time_ns;
  };
  for (const auto& [key, own] : standing)
    for (const EvidenceError* each : own)
      if (!cause || earlier(*each, *cause)) cause = each;
  return cause;
}

}  // namespace lockstep::inspect
