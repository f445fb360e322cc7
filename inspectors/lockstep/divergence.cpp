#include "inspectors/lockstep/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep::inspect {
namespace {

using Op = OpSequence::Op;

template <typename Get>
bool all_equal(const std::vector<OpSequence>& runs, size_t position, Get Op::* field) {
  return std::ranges::all_of(
      runs, [&](const OpSequence& run) { return run.ops[position].*field == runs[0].ops[position].*field; });
}

void set_first(std::optional<size_t>& position, size_t value) {
  if (!position) position = value;
}

/// Whether the divisors of all runs multiply to the same number, or a later number differs between the runs: then the
/// loss or the gradients are multiplied by the count again, and the different divisors are intended.
bool divisors_are_compensated(const Divergence& divergence, const std::vector<double>& products) {
  constexpr double kRounding = 1e-6;
  const bool equal = std::ranges::all_of(
      products, [&](double each) { return std::abs(each - products[0]) <= kRounding * std::abs(products[0]); });
  return equal ||
         std::ranges::any_of(divergence.numbers, [&](size_t position) { return position > *divergence.divisor; });
}

}  // namespace

std::optional<size_t> Divergence::first_fault() const {
  std::optional<size_t> first;
  for (const auto& each : {computation, parameter, update, order})
    if (each && (!first || *each < *first)) first = each;
  return first;
}

CommonEffects common_effects(const std::vector<OpSequence>& runs) {
  std::vector<std::vector<uint64_t>> names;
  for (const OpSequence& run : runs) {
    names.emplace_back();
    for (const Op& op : run.ops)
      if (op.flags & OpSequence::kEffect) names.back().push_back(op.name);
  }
  CommonEffects result;
  const auto ends = [&](const auto& each) { return each.size() == result.count; };
  const auto as_first = [&](const auto& each) { return each[result.count] == names[0][result.count]; };
  while (std::ranges::none_of(names, ends) && std::ranges::all_of(names, as_first)) ++result.count;
  result.all = std::ranges::all_of(names, ends);
  for (const auto& each : names) result.finished.push_back(!result.all && ends(each));
  return result;
}

Divergence find_divergence(const std::vector<OpSequence>& runs) {
  Divergence divergence;
  size_t shortest = runs[0].ops.size(), longest = shortest;
  for (const OpSequence& run : runs) {
    shortest = std::min(shortest, run.ops.size());
    longest = std::max(longest, run.ops.size());
  }
  size_t i = 0;
  std::vector<double> divided(runs.size(), 1.0);  // by run: the product of all divisors of losses
  for (; i < shortest && all_equal(runs, i, &Op::name); ++i) {
    const uint64_t flags = runs[0].ops[i].flags;
    if (flags & OpSequence::kCollective) continue;  // inputs differ as they should, and the result comes later
    const bool same_inputs = all_equal(runs, i, &Op::inputs), same_outputs = all_equal(runs, i, &Op::outputs);
    const bool same_generator = all_equal(runs, i, &Op::generator);
    if (!same_inputs) set_first(divergence.input, i);
    if (!(flags & OpSequence::kEngine)) {
      if (!all_equal(runs, i, &Op::outside)) set_first(divergence.outside, i);
      if (!all_equal(runs, i, &Op::numbers)) divergence.numbers.push_back(i);
      const bool divides = std::ranges::all_of(runs, [&](const OpSequence& run) { return run.ops[i].divisor != 0; });
      if (divides && !all_equal(runs, i, &Op::divisor)) set_first(divergence.divisor, i);
      for (size_t r = 0; divides && r < runs.size(); ++r) divided[r] *= runs[r].ops[i].divisor;
    }
    const bool draws_differently = (flags & OpSequence::kRandom) && !same_generator;
    const bool all_read =
        std::ranges::none_of(runs, [&](const OpSequence& run) { return run.ops[i].flags & OpSequence::kUnread; });
    if (same_inputs && !same_outputs && all_read)
      set_first(draws_differently ? divergence.random : divergence.computation, i);
    const bool reads_same_parameters = all_equal(runs, i, &Op::parameters_read);
    const bool forward = (flags & OpSequence::kGrad) && !(flags & OpSequence::kEngine);
    const bool writes_parameter = flags & OpSequence::kWritesParameter;
    if (forward && !reads_same_parameters && !writes_parameter) set_first(divergence.parameter, i);
    if (writes_parameter && !draws_differently && reads_same_parameters && !all_equal(runs, i, &Op::parameters_written))
      set_first(divergence.update, i);
  }
  divergence.common = i;
  if (i < longest) divergence.order = i;
  if (divergence.divisor && divisors_are_compensated(divergence, divided)) divergence.divisor.reset();
  return divergence;
}

std::vector<bool> outputs_that_differ(const std::vector<OpSequence>& runs, size_t common) {
  std::vector<bool> differs(common);
  for (size_t i = 0; i < common; ++i) differs[i] = !all_equal(runs, i, &Op::outputs);
  return differs;
}

}  // namespace lockstep::inspect
