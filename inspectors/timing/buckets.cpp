#include "inspectors/timing/buckets.h"

#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "ddp/inspection.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/trace/time_mark.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {
namespace {

std::vector<int64_t> element_counts(const ddp::DistributedModule& net, const std::vector<ddp::Bucket>& buckets) {
  std::map<std::string, int64_t> count_of;
  for (const auto& each : net.named_parameters()) count_of[each.key()] = each.value().numel();
  std::vector<int64_t> counts;
  for (const ddp::Bucket& bucket : buckets) {
    counts.push_back(0);
    for (const std::string& name : bucket.parameters) counts.back() += count_of[name];
  }
  return counts;
}

/// Returns the last consecutive reductions in the log that have the sizes of the buckets and that c10d made itself.
/// Empty without any.
std::vector<dist::CollectiveRecord> reductions_of(const std::vector<int64_t>& sizes, const std::string& group) {
  constexpr size_t kAll = dist::log_layout::kEntryCapacity;
  const auto context = dist::current_context();
  if (!context || sizes.empty()) return {};
  context->log()->device_progress().look();  // the log learns what devices have done
  std::vector<dist::CollectiveRecord> records;
  for (auto& each : dist::CollectiveLogReader(context->log()->mapping()).last(kAll))
    if (each.group == group && each.op == "all_reduce" && each.through_c10d) records.push_back(std::move(each));
  for (size_t end = records.size(); end >= sizes.size(); --end) {
    const size_t begin = end - sizes.size();
    bool match = true;
    for (size_t i = 0; i < sizes.size() && match; ++i)
      match = c10::multiply_integers(records[begin + i].shape) == sizes[i] && records[begin + i].done_ns > 0;
    if (match)
      return {records.begin() + static_cast<std::ptrdiff_t>(begin), records.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  return {};
}

/// Returns the time covered by at least one of the spans, and the part of it before `limit`.
std::pair<double, double> covered(std::vector<std::pair<double, double>> spans, double limit) {
  std::sort(spans.begin(), spans.end());
  double all = 0, before = 0, reached = 0;
  for (auto [begin, end] : spans) {
    begin = std::max(begin, reached);
    if (end <= begin) continue;
    all += end - begin;
    before += std::max(0.0, std::min(end, limit) - begin);
    reached = end;
  }
  return {all, before};
}

/// Returns the device that has the gradients; none: the CPU.
std::optional<c10::Device> device_of(const ddp::DistributedModule& net) {
  for (const at::Tensor& each : net.parameters())
    if (!each.is_cpu()) return each.device();
  return std::nullopt;
}

/// Takes times from the events of the last step, on a device that is between steps and has been waited for.
void add_device_times(const ddp::DistributedModule& net, c10::Device device,
                      const std::vector<dist::CollectiveRecord>& reductions, RankBuckets& result) {
  const auto context = dist::current_context();
  dist::DeviceSpans& spans = context->find(net.process_group()).group->device_spans();
  const ddp::StepMarks& marks = ddp::Inspection(net).device_marks();
  const bool recorded = spans.on() && marks.forward_end && marks.backward_end;
  spans.keep_on();
  result.recording_began = !recorded;
  if (!recorded || reductions.empty()) return;
  std::map<int64_t, std::shared_ptr<const dist::DeviceSpan>> by_seq;
  for (auto& each : spans.all()) by_seq[each->seq] = std::move(each);
  for (const dist::CollectiveRecord& each : reductions)
    if (!by_seq.contains(each.seq)) return;
  const auto since_forward = [&](const c10::Event& event) { return seconds_between(*marks.forward_end, event); };
  result.backward_end = since_forward(*marks.backward_end);
  std::vector<std::pair<double, double>> covered_by;
  for (const dist::CollectiveRecord& each : reductions) {
    const dist::DeviceSpan& span = *by_seq[each.seq];
    BucketTimes times;
    times.ready = since_forward(span.queued);
    // One reduction of a group runs after the other.
    times.start = std::max(times.ready, covered_by.empty() ? 0 : covered_by.back().second);
    times.end = since_forward(*span.done);
    covered_by.emplace_back(*times.start, *times.end);
    result.exposed = std::max(result.exposed, *times.end - result.backward_end);
    result.buckets.push_back(times);
  }
  const auto [all, before] = covered(std::move(covered_by), result.backward_end);
  if (all > 0) result.hidden = before / all;
}

RankBuckets times_of(const ddp::DistributedModule& net, const std::vector<ddp::Bucket>& buckets, int rank) {
  RankBuckets result{.rank = rank};
  const auto reducer = net.reducer();
  if (!reducer) return result;
  if (const auto device = device_of(net)) {
    wait_for_device(*device);
    add_device_times(net, *device,
                     reductions_of(element_counts(net, buckets), dist::get_group_name(net.process_group())), result);
    return result;
  }
  if (net.steps() == 0) return result;
  const std::vector<int64_t> ready_ns = reducer->get_backward_stats();
  for (const ddp::Bucket& bucket : buckets) {
    BucketTimes times;
    for (const size_t i : bucket.parameter_indices)
      times.ready = std::max(times.ready, static_cast<double>(ready_ns.at(i)) * 1e-9);
    result.backward_end = std::max(result.backward_end, times.ready);
    result.buckets.push_back(times);
  }
  const auto reductions = reductions_of(element_counts(net, buckets), dist::get_group_name(net.process_group()));
  if (reductions.empty()) return result;
  // The Reducer counts from the end of forward, by another clock than the log's. No bucket is reduced before it is
  // ready, so the bucket that was reduced soonest after it was ready gives the best estimate of the offset.
  std::vector<int64_t> waited;
  for (size_t i = 0; i < reductions.size(); ++i) {
    int64_t ready = 0;
    for (const size_t parameter : buckets[i].parameter_indices) ready = std::max(ready, ready_ns.at(parameter));
    waited.push_back(reductions[i].entered_ns - ready);
  }
  const int64_t origin = *std::min_element(waited.begin(), waited.end());
  std::vector<std::pair<double, double>> spans;
  for (size_t i = 0; i < reductions.size(); ++i) {
    BucketTimes& times = result.buckets[i];
    times.start = static_cast<double>(reductions[i].entered_ns - origin) * 1e-9;
    times.end = static_cast<double>(reductions[i].done_ns - origin) * 1e-9;
    spans.emplace_back(*times.start, *times.end);
    result.exposed = std::max(result.exposed, *times.end - result.backward_end);
  }
  // The Reducer reduces the first bucket as soon as it is ready. If that is not so, the reductions belong to another
  // step than the statistics, and their times are left out.
  constexpr int64_t kSoonNs = 50'000'000;
  if (waited[0] - origin > kSoonNs) {
    for (BucketTimes& each : result.buckets) each.start = each.end = std::nullopt;
    result.exposed = 0;
    return result;
  }
  const auto [all, before] = covered(std::move(spans), result.backward_end);
  if (all > 0) result.hidden = before / all;
  return result;
}

constexpr size_t kColumns = 50;

double end_of(const RankBuckets& rank) {
  double end = rank.backward_end;
  for (const BucketTimes& each : rank.buckets) end = std::max(end, each.end.value_or(0));
  return end;
}

/// Writes '.' until the gradients are ready, '=' for reduction during backward, '#' after it, '|' for backward's end.
std::string bar(const BucketTimes& times, double backward_end, double end) {
  const auto column = [&](double time) {
    return std::min(kColumns - 1, static_cast<size_t>(std::max(0.0, time) / end * kColumns));
  };
  std::string text(kColumns, ' ');
  for (size_t i = 0; i < column(times.ready); ++i) text[i] = '.';
  if (times.start && times.end)
    for (size_t i = column(*times.start); i <= column(*times.end); ++i) text[i] = i < column(backward_end) ? '=' : '#';
  text[column(backward_end)] = '|';
  return text;
}

std::string names_of(const ddp::Bucket& bucket) {
  if (bucket.parameters.empty()) return "";
  if (bucket.parameters.size() == 1) return bucket.parameters[0];
  return fmt::format("{} … {} ({})", bucket.parameters.front(), bucket.parameters.back(), bucket.parameters.size());
}

}  // namespace

BucketsReport buckets(const ddp::DistributedModule& net, const BucketsOptions& options) {
  BucketsReport report;
  std::optional<RankSet> group;
  if (dist::is_initialized()) group = RankSet(dist::session_ranks(net.process_group()));
  Inspection inspection({.inspector = "buckets", .object = options.name(), .ranks = group}, options);
  if (!inspection.takes_part()) return report;
  report.buckets = net.buckets();
  if (net.steps() > 0) report.step = net.steps();
  const RankBuckets mine = times_of(net, report.buckets, inspection.rank());
  if (auto facts = inspection.exchange_facts(mine)) report.ranks = *std::move(facts);  // nothing is judged
  inspection.conclude(report);
  return report;
}

std::ostream& operator<<(std::ostream& out, const BucketsReport& report) {
  int64_t bytes = 0;
  for (const ddp::Bucket& each : report.buckets) bytes += each.bytes;
  out << counted(static_cast<int64_t>(report.buckets.size()), "bucket") << ", "
      << bytes_text(static_cast<double>(bytes));
  const auto last = std::max_element(report.ranks.begin(), report.ranks.end(),
                                     [](const auto& a, const auto& b) { return end_of(a) < end_of(b); });
  const bool timed = last != report.ranks.end() && !last->buckets.empty();
  if (timed)
    out << fmt::format("; times of step {} on rank {}, from the end of forward to {}\n", report.step.value_or(0),
                       last->rank, time_text(end_of(*last)));
  else if (std::ranges::any_of(report.ranks, &RankBuckets::recording_began))
    out << "; the device's times are recorded from now on: ask again after a step\n";
  else
    out << "; no synchronised step yet, so there are no times\n";
  std::vector<std::vector<std::string>> rows = {{"#", "bytes", "ready", "reduced from", "to", "", "parameters"}};
  for (size_t i = 0; i < report.buckets.size(); ++i) {
    const ddp::Bucket& bucket = report.buckets[i];
    const BucketTimes times = timed && i < last->buckets.size() ? last->buckets[i] : BucketTimes{};
    rows.push_back({std::to_string(bucket.index), bytes_text(static_cast<double>(bucket.bytes)),
                    timed ? time_text(times.ready) : "-", times.start ? time_text(*times.start) : "-",
                    times.end ? time_text(*times.end) : "-", timed ? bar(times, last->backward_end, end_of(*last)) : "",
                    names_of(bucket)});
  }
  out << table_text(rows);
  if (!timed) return out;
  out << ". gradients not ready   = reduction during backward   # reduction after backward   | end of backward\n";
  for (const RankBuckets& each : report.ranks)
    out << fmt::format("rank {}: backward {}, then {} of reductions; {} of their time hidden\n", each.rank,
                       time_text(each.backward_end), time_text(each.exposed),
                       each.hidden ? percent_text(*each.hidden) : "unknown");
  return out;
}

LOCKSTEP_JSON(BucketTimes, ready, start, end)
LOCKSTEP_DECLARED_JSON(RankBuckets, rank, buckets, backward_end, hidden, exposed, recording_began)

}  // namespace lockstep::inspect
