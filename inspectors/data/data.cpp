#include "inspectors/data/data.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/log/collective_op.h"
#include "collectives/watch/spelling.h"
#include "inspectors/data/findings.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/subject/saved_state.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace detail {

GeneratorsKept::GeneratorsKept() : saved_(std::make_shared<SavedState>()) {}
GeneratorsKept::~GeneratorsKept() { static_cast<const SavedState*>(saved_.get())->restore(); }

void throw_endless(size_t samples) {
  throw dist::ArgumentError(fmt::format("{}: after {} samples the sampler still has more; an epoch must have an end",
                                        inspect_name("data"), samples));
}

std::vector<int64_t> numbers_of(const at::Tensor& indices) {
  const at::Tensor numbers = indices.detach().to(at::kCPU, at::kLong).contiguous();
  const int64_t* from = numbers.const_data_ptr<int64_t>();
  return {from, from + numbers.numel()};
}

void append(SampleOrder& order, const at::Tensor& indices) {
  if (!indices.defined()) throw dist::ArgumentError(inspect_name("data") + ": the tensor of indices is undefined");
  if (!c10::isIntegralType(indices.scalar_type(), /*includeBool=*/false) || indices.dim() < 1 || indices.dim() > 2)
    throw dist::ArgumentError(fmt::format(
        "{}: indices are integers, in one dimension or in two (batches); this is {} of {} dimensions",
        inspect_name("data"), dist::dtype_name(static_cast<uint8_t>(indices.scalar_type())), indices.dim()));
  order.samples = numbers_of(indices);
  if (indices.dim() == 2) order.batches.emplace(static_cast<size_t>(indices.size(0)), indices.size(1));
}

}  // namespace detail

namespace {

/// Keeps the order of this rank in the last call with the same name.
struct LastOrder {
  std::vector<int64_t> samples;
  std::optional<int64_t> epoch;
};
std::map<std::string, LastOrder>& last_orders() {
  static thread_local std::map<std::string, LastOrder> orders;
  return orders;
}

/// Sets whether this rank's order is that of an earlier epoch.
void find_repeats(const SampleOrder& order, const DataOptions& options, DataFacts& facts) {
  if (order.samples.size() < 2 || in_sequence(order.samples)) return;
  LastOrder& last = last_orders()[options.name()];
  if (last.samples == order.samples) {
    if (!options.epoch() || !last.epoch)
      facts.repeats_last_call = true;
    else if (*options.epoch() != *last.epoch)
      facts.repeated_epoch = last.epoch;
  }
  last = {order.samples, options.epoch()};
  // A sampler without any call of set_epoch() is still in epoch 0.
  const int64_t now = options.epoch().value_or(0);
  if (!facts.repeated_epoch && now > 0 && order.reported_epoch == 0 && order.of_epoch &&
      order.of_epoch(now) != order.samples)
    facts.repeated_epoch = 0;
}

DataFacts look(const SampleOrder& order, const DataOptions& options) {
  DataFacts facts{.has_batches = order.batches.has_value(),
                  .size = options.size(),
                  .batch_size = options.batch_size(),
                  .epoch = options.epoch(),
                  .reported_epoch = order.reported_epoch,
                  .join = options.join(),
                  .worker_seed = order.worker_seed};
  find_repeats(order, options, facts);
  return facts;
}

void check(const DataOptions& options) {
  const auto must_be = [](std::optional<int64_t> value, int64_t least, const char* name) {
    if (value && *value < least)
      throw dist::ArgumentError(
          fmt::format("{}: {} is {}; it must be {} or more", inspect_name("data"), name, *value, least));
  };
  must_be(options.size(), 0, "size");
  must_be(options.batch_size(), 1, "batch_size");
  must_be(options.epoch(), 0, "epoch");
}

}  // namespace

DataReport data_of(const SampleOrder& order, const DataOptions& options) {
  check(options);
  DataReport report;
  Inspection inspection({.inspector = "data", .object = options.name()}, options);
  if (!inspection.takes_part()) return report;
  const DataFacts mine = look(order, options);
  if (const auto facts = inspection.exchange_facts(mine)) {
    SampleOrders orders;
    orders.samples = inspection.exchange().gather_integers(order.samples);
    if (std::ranges::all_of(*facts, &DataFacts::has_batches))
      orders.batches = inspection.exchange().gather_integers(*order.batches);
    DataJudgement judgement = data_findings(inspection.about(), *facts, orders);
    static_cast<DataNumbers&>(report) = std::move(judgement.numbers);
    inspection.add(std::move(judgement.findings));
  }
  inspection.conclude(report);
  return report;
}

}  // namespace lockstep::inspect
