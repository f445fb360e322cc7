#include "inspectors/lockstep/op_description.h"

#include <nlohmann/json.hpp>

#include "collectives/log/collective_op.h"

namespace lockstep::inspect {

using nlohmann::json;

namespace {

MarkDescription described(const OpRecord& record, const OpMark& mark, const TensorNames& names) {
  MarkDescription result{.kind = mark.kind,
                         .argument = mark.argument,
                         .hash = mark.hash,
                         .norm = mark.norm,
                         .setting = mark.setting,
                         .outside = mark.kind == OpMark::Kind::kTensor && mark.from < 0,
                         .shape = record.text(mark.shape),
                         .dtype = dist::dtype_name(mark.dtype),
                         .name = {},
                         .value = record.text(mark.value)};
  if (const TensorName* name = names.find(mark.identity)) result.name = name->name;
  if (mark.name != 0) result.name = record.text(mark.name);
  return result;
}

/// Follows inputs that differ back to the operator that the difference came from, and fills in what is known of it.
class SourceSearch {
 public:
  SourceSearch(const OpRecord& record, const std::vector<uint32_t>& relevant, const std::vector<bool>& differs)
      : record_(record), differs_(differs), position_of_(record.entries().size(), -1) {
    for (size_t i = 0; i < relevant.size(); ++i) position_of_[relevant[i]] = static_cast<int64_t>(i);
  }

  void run(const OpEntry& start, OpDescription& op) const {
    const OpEntry* at = &start;
    for (size_t steps = 0; steps < differs_.size(); ++steps) {
      for (size_t i = 0; i < at->inputs; ++i) {
        if (!record_.inputs(*at)[i].in_flight) continue;
        set_collective(record_.inputs(*at)[i].from, op);
        op.in_flight = true;
      }
      if (op.in_flight) return;
      const int32_t before = writer_of_difference(*at);
      if (before < 0) return;
      const OpEntry& writer = entry(before);
      if (writer.engine) {
        op.source = DifferenceSource::gradient;
        return;
      }
      if (writer.collective) return set_collective(before, op);
      if (writer.random) op.source = DifferenceSource::random;
      at = &writer;
    }
  }

 private:
  const OpEntry& entry(int32_t number) const { return record_.entries()[static_cast<size_t>(number)]; }

  /// Returns the operator that wrote the first input of `op` that differs, or may differ; -1 without one.
  int32_t writer_of_difference(const OpEntry& op) const {
    for (size_t i = 0; i < op.inputs; ++i) {
      const int32_t from = record_.inputs(op)[i].from;
      if (from < 0 || &entry(from) >= &op) continue;
      const int64_t position = position_of_[static_cast<size_t>(from)];
      const bool differs =
          position >= 0 && static_cast<size_t>(position) < differs_.size() && differs_[static_cast<size_t>(position)];
      if (entry(from).hook || entry(from).collective || differs) return from;
    }
    return -1;
  }

  void set_collective(int32_t number, OpDescription& op) const {
    op.collective = record_.collective_of(number);
    op.collective_where = describe_call_site(record_.site(entry(number).site));
    op.source = DifferenceSource::collective;
  }

  const OpRecord& record_;
  const std::vector<bool>& differs_;
  std::vector<int64_t> position_of_;  // by index of the entry; -1: not compared
};

}  // namespace

void to_json(json& value, const MarkDescription& mark) {
  value = {mark.kind,    mark.argument, mark.hash,  mark.norm, mark.setting,
           mark.outside, mark.shape,    mark.dtype, mark.name, mark.value};
}

void from_json(const json& value, MarkDescription& mark) {
  mark = {.kind = value.at(0),
          .argument = value.at(1),
          .hash = value.at(2),
          .norm = value.at(3),
          .setting = value.at(4),
          .outside = value.at(5),
          .shape = value.at(6),
          .dtype = value.at(7),
          .name = value.at(8).get<std::optional<std::string>>(),
          .value = value.at(9)};
}

std::optional<OpDescription> describe_op(const OpRecord& record, const std::vector<uint32_t>& relevant, size_t position,
                                         const TensorNames& names, const std::vector<bool>& differs) {
  if (position >= relevant.size()) return std::nullopt;
  const OpEntry& entry = record.entries()[relevant[position]];
  OpDescription op{.name = record.text(entry.name),
                   .node = record.text(entry.node),
                   .forward = {},
                   .number = relevant[position] + 1,
                   .position = static_cast<int64_t>(position) + 1,
                   .engine = entry.engine,
                   .grad = entry.grad,
                   .where = describe_call_site(record.site(entry.site)),
                   .module = {},
                   .object = {},
                   .autocast = record.text(entry.autocast),
                   .after_module = entry.after_parameter,
                   .inputs = {},
                   .outputs = {},
                   .divisor = entry.divisor};
  if (entry.forward >= 0) op.forward = record.text(record.entries()[static_cast<size_t>(entry.forward)].name);
  if (const TensorName* name = names.find(entry.parameter)) {
    op.module = name->module();
    op.object = name->object;
  }
  for (size_t i = 0; i < entry.inputs; ++i) op.inputs.push_back(described(record, record.inputs(entry)[i], names));
  for (size_t i = 0; i < entry.outputs; ++i) op.outputs.push_back(described(record, record.outputs(entry)[i], names));
  SourceSearch(record, relevant, differs).run(entry, op);
  return op;
}

}  // namespace lockstep::inspect
