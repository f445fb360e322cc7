#include "inspectors/data/data.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "collectives/log/collective_op.h"
#include "inspectors/data/findings.h"
#include "inspectors/subject/saved_state.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace detail {

UndrawnNumbers::UndrawnNumbers() : kept_(std::make_shared<SavedState>()) {}
UndrawnNumbers::~UndrawnNumbers() { static_cast<const SavedState*>(kept_.get())->restore(); }

void throw_endless(size_t samples) {
  throw dist::ArgumentError(
      fmt::format("inspect::data: after {} samples the sampler still has more; an epoch must have an end", samples));
}

std::vector<int64_t> numbers_of(const at::Tensor& indices) {
  const at::Tensor numbers = indices.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* from = numbers.const_data_ptr<int64_t>();
  return {from, from + numbers.numel()};
}

void append(SampleOrder& order, const at::Tensor& indices) {
  if (!indices.defined()) throw dist::ArgumentError("inspect::data: the tensor of indices is undefined");
  if (!c10::isIntegralType(indices.scalar_type(), /*includeBool=*/false) || indices.dim() < 1 || indices.dim() > 2)
    throw dist::ArgumentError(fmt::format(
        "inspect::data: indices are integers, in one dimension or in two (batches); this is {} of {} dimensions",
        dist::dtype_name(static_cast<uint8_t>(indices.scalar_type())), indices.dim()));
  order.samples = numbers_of(indices);
  if (indices.dim() == 2) order.batches.emplace(static_cast<size_t>(indices.size(0)), indices.size(1));
}

}  // namespace detail

namespace {

/// What this rank saw at the last call of the same name.
struct LastLook {
  std::vector<int64_t> samples;
  std::optional<int64_t> epoch;
};
std::map<std::string, LastLook>& last_looks() {
  static thread_local std::map<std::string, LastLook> looks;
  return looks;
}

/// How this rank's order repeats that of an epoch before.
struct Repeats {
  std::optional<int64_t> epoch;  // proven: of this epoch
  bool perhaps = false;  // as at the last call, which may have been for the same epoch
};

Repeats find_repeats(const SampleOrder& order, const DataOptions& options) {
  Repeats result;
  if (order.samples.size() < 2 || in_sequence(order.samples)) return result;
  LastLook& last = last_looks()[options.name()];
  if (last.samples == order.samples) {
    if (!options.epoch() || !last.epoch)
      result.perhaps = true;
    else if (*options.epoch() != *last.epoch)
      result.epoch = last.epoch;
  }
  last = {order.samples, options.epoch()};
  // A sampler that nobody has told of an epoch is still in its first.
  const int64_t now = options.epoch().value_or(0);
  if (!result.epoch && now > 0 && order.told_epoch == 0 && order.of_epoch && order.of_epoch(now) != order.samples)
    result.epoch = 0;
  return result;
}

std::vector<Finding> judge_repeats(const std::vector<nlohmann::json>& all, const DataOptions& options,
                                   const Round& round) {
  std::vector<Finding> findings;
  std::map<int64_t, RankSet> proven;
  RankSet perhaps;
  for (size_t i = 0; i < all.size(); ++i) {
    const int rank = round.ranks().ranks()[i];
    if (!all[i].at("repeats").is_null()) proven[all[i].at("repeats").get<int64_t>()].insert(rank);
    if (all[i].at("perhaps").get<bool>()) perhaps.insert(rank);
  }
  for (const auto& [epoch, ranks] : proven) {
    Finding found = round.finding(Severity::fault, "duplicate_data");
    found.kind = "epoch";
    found.ranks = ranks;
    found.message = fmt::format(
        "in epoch {} {} read{} in the order of epoch {}: call set_epoch({}) of the sampler that the loader reads "
        "before "
        "the epoch begins (a DataLoader keeps a copy of the sampler that it is made with)",
        options.epoch().value_or(0), ranks.words(), ranks.size() == 1 ? "s" : "", epoch, options.epoch().value_or(0));
    findings.push_back(std::move(found));
  }
  if (perhaps.empty()) return findings;
  Finding found = round.finding(Severity::note, "ok");
  found.kind = "epoch";
  found.ranks = perhaps;
  found.message = fmt::format(
      "{} read{} in the same order as at the last call. If an epoch lies between, set_epoch was forgotten (--epoch K "
      "says which one it is)",
      perhaps.words(), perhaps.size() == 1 ? "s" : "");
  findings.push_back(std::move(found));
  return findings;
}

nlohmann::json number(const std::optional<int64_t>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

/// What each rank says of it.
std::vector<std::optional<int64_t>> numbers(const std::vector<nlohmann::json>& all, const char* name) {
  std::vector<std::optional<int64_t>> result;
  for (const nlohmann::json& each : all)
    result.push_back(each.at(name).is_null() ? std::nullopt : std::optional(each.at(name).get<int64_t>()));
  return result;
}

void check(const DataOptions& options) {
  const auto must_be = [](std::optional<int64_t> value, int64_t least, const char* name) {
    if (value && *value < least)
      throw dist::ArgumentError(fmt::format("inspect::data: {} is {}; it must be {} or more", name, *value, least));
  };
  must_be(options.size(), 0, "size");
  must_be(options.batch_size(), 1, "batch_size");
  must_be(options.epoch(), 0, "epoch");
}

}  // namespace

DataReport data_of(const SampleOrder& order, const DataOptions& options) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  DataReport report;
  Round round(
      {.inspector = "data", .object = options.name(), .ranks = options.ranks(), .deadline = options.deadline()});
  if (!round.takes_part()) return report;
  const Repeats repeats = find_repeats(order, options);
  const auto all = round.open({{"repeats", number(repeats.epoch)},
                               {"perhaps", repeats.perhaps},
                               {"batches", order.batches.has_value()},
                               {"size", number(options.size())},
                               {"batch_size", number(options.batch_size())},
                               {"told_epoch", number(order.told_epoch)},
                               {"join", options.join()}});
  if (all) {
    SampleOrders orders;
    orders.samples = round.gather(order.samples);
    const bool batches = std::all_of(all->begin(), all->end(), [](const auto& each) { return each.at("batches"); });
    if (batches) orders.batches = round.gather(*order.batches);
    orders.size = numbers(*all, "size");
    orders.batch_size = numbers(*all, "batch_size");
    orders.told_epoch = numbers(*all, "told_epoch");
    orders.join = std::ranges::any_of(*all, [](const auto& each) { return each.at("join").template get<bool>(); });
    orders.repeats = judge_repeats(*all, options, round);
    judge(orders, report, round);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  round.close(report, options.publish());
  return report;
}

}  // namespace lockstep::inspect
