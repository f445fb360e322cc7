#include "inspectors/lockstep/op_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "collectives/log/collective_op.h"
#include "inspectors/fingerprint/fingerprint.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

uint64_t add(uint64_t hash, uint64_t value) { return combine({hash, hash}, {value, value})[0]; }

uint64_t text_hash(const std::string& text) { return hash_of(text)[0]; }

template <typename Get>
bool all_equal(const std::vector<OpSequence>& runs, size_t place, Get&& get) {
  return std::all_of(runs.begin(), runs.end(),
                     [&](const OpSequence& run) { return get(run.ops[place]) == get(runs[0].ops[place]); });
}

uint64_t name_of(const OpRecord& record, const OpEntry& entry) {
  return add(text_hash(record.text(entry.name)), text_hash(record.text(entry.node)));
}

json describe_mark(const OpRecord& record, const OpMark& mark, const TensorNames& names) {
  json result = {{"kind", static_cast<int>(mark.kind)},
                 {"argument", mark.argument},
                 {"hash", mark.hash},
                 {"norm", mark.norm},
                 {"scalar", mark.scalar},
                 {"outside", mark.kind == OpMark::Kind::kTensor && mark.from < 0},
                 {"shape", record.text(mark.shape)},
                 {"dtype", dist::dtype_name(mark.dtype)},
                 {"name", nullptr}};
  if (const TensorName* name = names.find(mark.identity)) result["name"] = name->name;
  return result;
}

}  // namespace

std::vector<uint8_t> OpSequence::bytes() const {
  static_assert(std::is_trivially_copyable_v<Op>);
  std::vector<uint8_t> result(sizeof left_out + ops.size() * sizeof(Op));
  std::memcpy(result.data(), &left_out, sizeof left_out);
  if (!ops.empty()) std::memcpy(result.data() + sizeof left_out, ops.data(), ops.size() * sizeof(Op));
  return result;
}

OpSequence OpSequence::from_bytes(const std::vector<uint8_t>& bytes) {
  OpSequence result;
  std::memcpy(&result.left_out, bytes.data(), sizeof result.left_out);
  result.ops.resize((bytes.size() - sizeof result.left_out) / sizeof(Op));
  if (!result.ops.empty())
    std::memcpy(result.ops.data(), bytes.data() + sizeof result.left_out, result.ops.size() * sizeof(Op));
  return result;
}

std::optional<size_t> Partings::first_fault() const {
  std::optional<size_t> first;
  for (const auto& each : {computation, parameter, written, order})
    if (each && (!first || *each < *first)) first = each;
  return first;
}

OpSequence sequence_of(const OpRecord& record, const std::vector<uint32_t>& matters) {
  OpSequence sequence;
  sequence.left_out = record.left_out();
  for (const uint32_t number : matters) {
    const OpEntry& entry = record.entries()[number];
    OpSequence::Op op;
    op.name = name_of(record, entry);
    for (size_t i = 0; i < entry.inputs; ++i) {
      const OpMark& mark = record.inputs(entry)[i];
      if (mark.kind == OpMark::Kind::kGenerator) {
        op.generator = add(op.generator, mark.hash);
        continue;
      }
      const uint64_t seen = add(mark.hash, text_hash(record.text(mark.shape)));
      op.inputs = add(op.inputs, seen);
      if (mark.kind == OpMark::Kind::kParameter) op.parameters_read = add(op.parameters_read, seen);
      if (mark.kind == OpMark::Kind::kNumber && mark.scalar) op.numbers = add(op.numbers, seen);
      if (mark.kind == OpMark::Kind::kTensor && mark.from < 0) op.outside = add(op.outside, seen);
    }
    for (size_t i = 0; i < entry.outputs; ++i) {
      const OpMark& mark = record.outputs(entry)[i];
      const uint64_t seen = add(mark.hash, text_hash(record.text(mark.shape)));
      op.outputs = add(op.outputs, seen);
      if (mark.kind == OpMark::Kind::kParameter) op.parameters_written = add(op.parameters_written, seen);
    }
    op.divisor = entry.divisor;
    op.flags = (entry.grad ? OpSequence::kGrad : 0) | (entry.engine ? OpSequence::kEngine : 0) |
               (entry.random ? OpSequence::kRandom : 0) | (entry.collective ? OpSequence::kCollective : 0) |
               (entry.writes_parameter ? OpSequence::kWritesParameter : 0) | (entry.unread ? OpSequence::kUnread : 0) |
               (entry.is_effect() ? OpSequence::kEffect : 0);
    sequence.ops.push_back(op);
  }
  return sequence;
}

CommonEffects common_effects(const std::vector<OpSequence>& runs) {
  std::vector<std::vector<uint64_t>> names;
  for (const OpSequence& run : runs) {
    names.emplace_back();
    for (const OpSequence::Op& op : run.ops)
      if (op.flags & OpSequence::kEffect) names.back().push_back(op.name);
  }
  CommonEffects result;
  const auto ends = [&](const auto& each) { return each.size() == result.count; };
  const auto as_first = [&](const auto& each) { return each[result.count] == names[0][result.count]; };
  while (std::ranges::none_of(names, ends) && std::ranges::all_of(names, as_first)) ++result.count;
  result.all = std::ranges::all_of(names, ends);
  for (const auto& each : names) result.through.push_back(!result.all && ends(each));
  return result;
}

std::vector<uint64_t> names_of_all(const OpRecord& record) {
  std::vector<uint64_t> result;
  for (const OpEntry& entry : record.entries()) result.push_back(name_of(record, entry));
  return result;
}

size_t first_not_in(const OpRecord& record, const std::vector<uint32_t>& matters, const std::vector<uint64_t>& ran) {
  auto next = ran.begin();
  for (size_t place = 0; place < matters.size(); ++place) {
    next = std::find(next, ran.end(), name_of(record, record.entries()[matters[place]]));
    if (next == ran.end()) return place;
    ++next;
  }
  return matters.size() - 1;
}

Partings find_partings(const std::vector<OpSequence>& runs) {
  using Op = OpSequence::Op;
  Partings partings;
  size_t shortest = runs[0].ops.size(), longest = shortest;
  for (const OpSequence& run : runs) {
    shortest = std::min(shortest, run.ops.size());
    longest = std::max(longest, run.ops.size());
  }
  const auto first = [](std::optional<size_t>& place, size_t here) {
    if (!place) place = here;
  };
  size_t i = 0;
  std::vector<double> divided(runs.size(), 1.0);  // by all that divides losses, over the whole step
  for (; i < shortest && all_equal(runs, i, [](const Op& op) { return op.name; }); ++i) {
    const uint64_t flags = runs[0].ops[i].flags;
    if (flags & OpSequence::kCollective) continue;  // made for different values, and done later
    const bool same_inputs = all_equal(runs, i, [](const Op& op) { return op.inputs; });
    const bool same_outputs = all_equal(runs, i, [](const Op& op) { return op.outputs; });
    const bool same_generator = all_equal(runs, i, [](const Op& op) { return op.generator; });
    if (!same_inputs) first(partings.input, i);
    if (!(flags & OpSequence::kEngine)) {
      if (!all_equal(runs, i, [](const Op& op) { return op.outside; })) first(partings.outside, i);
      const bool divides = std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return run.ops[i].divisor; });
      const bool same_numbers = all_equal(runs, i, [](const Op& op) { return op.numbers; });
      if (!same_numbers) partings.numbers.push_back(i);
      if (divides && !all_equal(runs, i, [](const Op& op) { return op.divisor; })) first(partings.divisor, i);
      for (size_t r = 0; divides && r < runs.size(); ++r) divided[r] *= runs[r].ops[i].divisor;
    }
    const bool random = flags & OpSequence::kRandom;
    const bool all_read = std::none_of(runs.begin(), runs.end(),
                                       [&](const OpSequence& run) { return run.ops[i].flags & OpSequence::kUnread; });
    if (same_inputs && !same_outputs && all_read)
      first(random && !same_generator ? partings.drawn : partings.computation, i);
    const bool reads_same = all_equal(runs, i, [](const Op& op) { return op.parameters_read; });
    const bool forward = (flags & OpSequence::kGrad) && !(flags & OpSequence::kEngine);
    if (forward && !reads_same && !(flags & OpSequence::kWritesParameter)) first(partings.parameter, i);
    if ((flags & OpSequence::kWritesParameter) && !(random && !same_generator) && reads_same &&
        !all_equal(runs, i, [](const Op& op) { return op.parameters_written; }))
      first(partings.written, i);
  }
  partings.common = i;
  if (i < longest) partings.order = i;
  // Multiplied by the count again, or gradients weighted by it later: then the counts are meant.
  constexpr double kRounding = 1e-6;
  const bool made_up_for = std::all_of(divided.begin(), divided.end(), [&](double each) {
    return std::abs(each - divided[0]) <= kRounding * std::abs(divided[0]);
  });
  if (partings.divisor && (made_up_for || std::any_of(partings.numbers.begin(), partings.numbers.end(),
                                                      [&](size_t place) { return place > *partings.divisor; })))
    partings.divisor.reset();
  return partings;
}

std::vector<bool> outputs_that_differ(const std::vector<OpSequence>& runs, size_t common) {
  std::vector<bool> differs(common);
  for (size_t i = 0; i < common; ++i)
    differs[i] = !all_equal(runs, i, [](const OpSequence::Op& op) { return op.outputs; });
  return differs;
}

json describe_place(const OpRecord& record, const std::vector<uint32_t>& matters, size_t place,
                    const TensorNames& names, const std::vector<bool>& differs) {
  if (place >= matters.size()) return nullptr;
  const OpEntry& entry = record.entries()[matters[place]];
  json result = {{"name", record.text(entry.name)},
                 {"node", record.text(entry.node)},
                 {"forward", entry.forward >= 0 ? record.text(record.entries()[static_cast<size_t>(entry.forward)].name)
                                                : std::string()},
                 {"number", matters[place] + 1},
                 {"place", place + 1},
                 {"engine", entry.engine},
                 {"grad", entry.grad},
                 {"where", describe_call_site(record.site(entry.site))},
                 {"module", ""},
                 {"object", ""},
                 {"after", entry.after_parameter},
                 {"inputs", json::array()},
                 {"outputs", json::array()},
                 {"divisor", entry.divisor},
                 {"source", ""},
                 {"collective", ""},
                 {"collective_where", ""},
                 {"in_flight", false}};
  if (const TensorName* name = names.find(entry.parameter)) {
    result["module"] = name->module();
    result["object"] = name->object;
  }
  for (size_t i = 0; i < entry.inputs; ++i)
    result["inputs"].push_back(describe_mark(record, record.inputs(entry)[i], names));
  for (size_t i = 0; i < entry.outputs; ++i)
    result["outputs"].push_back(describe_mark(record, record.outputs(entry)[i], names));

  // Back along what differs, to where it came in.
  std::vector<int64_t> place_of(record.entries().size(), -1);
  for (size_t i = 0; i < matters.size(); ++i) place_of[matters[i]] = static_cast<int64_t>(i);
  const OpEntry* at = &entry;
  std::string source = "outside";
  const auto came_from = [&](int32_t collective) {
    const OpEntry& writer = record.entries()[static_cast<size_t>(collective)];
    result["collective"] = record.collective_of(collective);
    result["collective_where"] = describe_call_site(record.site(writer.site));
    source = "collective";
  };
  for (size_t steps = 0; steps < differs.size(); ++steps) {
    const OpEntry* before = nullptr;
    for (size_t i = 0; i < at->inputs; ++i) {
      if (!record.inputs(*at)[i].in_flight) continue;
      came_from(record.inputs(*at)[i].from);
      result["in_flight"] = true;
    }
    if (result["in_flight"].get<bool>()) break;
    int32_t last = -1;
    for (size_t i = 0; i < at->inputs && !before; ++i) {
      const int32_t from = record.inputs(*at)[i].from;
      if (from < 0 || &record.entries()[static_cast<size_t>(from)] >= at) continue;
      const int64_t there = place_of[static_cast<size_t>(from)];
      const OpEntry& writer = record.entries()[static_cast<size_t>(from)];
      if (writer.hook || writer.collective ||
          (there >= 0 && static_cast<size_t>(there) < differs.size() && differs[static_cast<size_t>(there)]))
        before = &writer, last = from;
    }
    if (!before) break;
    if (before->engine) {
      source = "gradient";
      break;
    }
    if (before->collective) {
      came_from(last);
      break;
    }
    at = before;
    source = at->random ? "random" : source;
  }
  result["source"] = source;
  return result;
}

}  // namespace lockstep::inspect
