#include "inspectors/memory/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "inspectors/findings/text.h"
#include "protocol/json_fields.h"
#include "protocol/text.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kNamed = 3;  // as many owners of memory, or programs, are named

using Owner = std::pair<std::string, std::string>;  // name and kind

/// Returns the bytes of named tensors on the rank's device.
std::map<Owner, int64_t> held_on_device(const RankMemory& rank) {
  std::map<Owner, int64_t> held;
  for (const TensorMemory& each : rank.tensors)
    if (rank.device && each.device == rank.device->device) held[{each.name, each.kind}] += each.bytes;
  return held;
}

/// Returns what `rank` holds more of than `other`, the most first: "optimizer: states +1.2 GB, no name +0.3 GB".
std::string where_more(const RankMemory& rank, const RankMemory& other) {
  const auto mine = held_on_device(rank), theirs = held_on_device(other);
  std::vector<std::pair<int64_t, std::string>> more;
  int64_t without_name = rank.device->allocated - other.device->allocated;
  for (const auto& [owner, bytes] : mine) {
    const auto found = theirs.find(owner);
    const int64_t difference = bytes - (found == theirs.end() ? 0 : found->second);
    without_name -= difference;
    if (difference > 0) more.emplace_back(difference, fmt::format("{}: {}s", owner.first, owner.second));
  }
  for (const auto& [owner, bytes] : theirs)
    if (!mine.contains(owner)) without_name += bytes;
  if (without_name > 0) more.emplace_back(without_name, "tensors without a name here");
  std::sort(more.rbegin(), more.rend());
  std::string text;
  for (size_t i = 0; i < std::min(more.size(), kNamed); ++i)
    text += fmt::format("{}{} +{}", i > 0 ? ", " : "", more[i].second, memory_text(more[i].first));
  return text;
}

void add_outliers(std::vector<Finding>& findings, const About& about, const std::vector<RankMemory>& ranks) {
  std::vector<const RankMemory*> by_size;
  for (const RankMemory& each : ranks)
    if (each.device) by_size.push_back(&each);
  if (by_size.size() < 2) return;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](auto* a, auto* b) { return a->device->allocated < b->device->allocated; });
  const int64_t usual_bytes = by_size[(by_size.size() - 1) / 2]->device->allocated;
  // This is the lowest rank of those that have as much.
  const RankMemory& middle =
      **std::ranges::find_if(by_size, [&](auto* each) { return each->device->allocated == usual_bytes; });
  const auto usual = static_cast<double>(usual_bytes);
  RankSet usual_ranks;
  std::vector<const RankMemory*> above;
  for (const RankMemory* each : by_size) {
    const auto bytes = static_cast<double>(each->device->allocated);
    if (bytes > usual * kMoreThanOthers && bytes - usual >= static_cast<double>(kMuchMore))
      above.push_back(each);
    else
      usual_ranks.insert(each->rank);
  }
  for (const RankMemory* each : above) {
    Finding found = about.finding(Severity::note, Verdict::outlier, FindingKind::device);
    found.ranks = RankSet{each->rank};
    found.reference_ranks = usual_ranks;
    const std::string where = where_more(*each, middle);
    found.message = fmt::format("tensors of rank {} take {} on {}, those of rank {} {}{}", each->rank,
                                memory_text(each->device->allocated), each->device->device, middle.rank,
                                memory_text(middle.device->allocated), where.empty() ? "" : ": " + where);
    findings.push_back(std::move(found));
  }
}

void add_fragmentation(std::vector<Finding>& findings, const About& about, const std::vector<RankMemory>& ranks) {
  for (const RankMemory& each : ranks) {
    if (!each.device || !each.device->split) continue;
    const DeviceMemory& device = *each.device;
    if (*device.split < kMuchSplit ||
        static_cast<double>(*device.split) < kLargeShareSplit * static_cast<double>(device.reserved))
      continue;
    Finding found = about.finding(Severity::note, Verdict::unused, FindingKind::storage);
    found.ranks = RankSet{each.rank};
    std::string what = fmt::format("{} of the {} that LibTorch has reserved on {} are free in split blocks",
                                   memory_text(*device.split), memory_text(device.reserved), device.device);
    if (device.largest_free) what += fmt::format("; the largest free block has {}", memory_text(*device.largest_free));
    if (device.retries > 0) what += fmt::format("; {} gave memory back first", counted(device.retries, "allocation"));
    what +=
        ". Sizes that change from step to step split blocks; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in "
        "the environment of the ranks avoids most of it";
    set_message_with_ranks(found, what);
    findings.push_back(std::move(found));
  }
}

void add_other_programs(std::vector<Finding>& findings, const About& about, const std::vector<RankMemory>& ranks) {
  // Ranks that share a GPU have one finding.
  std::map<std::pair<std::string, std::string>, Finding> by_gpu;
  for (const RankMemory& each : ranks) {
    const auto others = other_programs(each, ranks);
    if (!others || others->empty()) continue;
    const auto [known, is_new] = by_gpu.try_emplace({each.host, each.device->bus_id});
    Finding& found = known->second;
    if (!is_new) {
      found.ranks.insert(each.rank);
      continue;
    }
    found = about.finding(Severity::note, Verdict::outlier, FindingKind::environment);
    found.ranks = RankSet{each.rank};
    std::vector<std::string> programs;
    for (const auto& other : *others) programs.push_back(program_text(other));
    found.message = protocol::listed(programs, kNamed);
  }
  for (auto& [gpu, found] : by_gpu) {
    const std::string text = found.message;
    set_message_with_ranks(found, fmt::format("the GPU {} is used by other programs, too: {}", gpu.second, text));
    findings.push_back(std::move(found));
  }
}

}  // namespace

std::string memory_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string program_text(const gpus::GpuProcess& process) {
  return fmt::format("{}pid {}{}", process.bytes ? memory_text(*process.bytes) + " by " : "", process.pid,
                     process.name.empty() ? "" : " (" + process.name + ")");
}

std::optional<std::vector<gpus::GpuProcess>> other_programs(const RankMemory& rank,
                                                            const std::vector<RankMemory>& ranks) {
  if (!rank.device) return std::nullopt;
  std::vector<gpus::GpuProcess> others;
  bool has_own = false;
  for (const gpus::GpuProcess& each : rank.device->processes) {
    has_own = has_own || each.pid == rank.pid;
    const bool is_rank = std::ranges::any_of(
        ranks, [&](const RankMemory& other) { return other.pid == each.pid && other.host == rank.host; });
    if (!is_rank) others.push_back(each);
  }
  if (!has_own) return std::nullopt;
  std::ranges::stable_sort(others,
                           [](const auto& a, const auto& b) { return a.bytes.value_or(0) > b.bytes.value_or(0); });
  return others;
}

std::optional<int64_t> memory_of_other_programs(const RankMemory& rank, const std::vector<RankMemory>& ranks) {
  const auto others = other_programs(rank, ranks);
  if (!others || others->empty()) return std::nullopt;
  int64_t bytes = 0;
  for (const gpus::GpuProcess& each : *others) bytes += each.bytes.value_or(0);
  return bytes;
}

std::vector<Finding> memory_findings(const About& about, const std::vector<RankMemory>& ranks) {
  std::vector<Finding> findings;
  add_outliers(findings, about, ranks);
  add_fragmentation(findings, about, ranks);
  add_other_programs(findings, about, ranks);
  return findings;
}

LOCKSTEP_JSON(TensorMemory, name, kind, device, tensors, bytes)
LOCKSTEP_JSON(PeriodMemory, cell, allocations, allocated, peak, kept)
LOCKSTEP_JSON(WatchedMemory, cells, steps, growth_per_step)
LOCKSTEP_JSON(DeviceMemory, device, bus_id, allocated, peak, reserved, segments, split, largest_free, retries, failures,
              used, total, processes)
LOCKSTEP_DECLARED_JSON(RankMemory, rank, pid, host, resident, peak_resident, heap_used, heap_free, device, tensors,
                       watched)

}  // namespace lockstep::inspect
