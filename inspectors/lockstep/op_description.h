// What findings say about an operator of a run: its name, what it read and wrote, and where the difference between the
// runs came from. A plain struct that ranks exchange as JSON.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/trace/op_record.h"
#include "inspectors/trace/tensor_names.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// An input or output of an operator.
struct MarkDescription {
  OpMark::Kind kind = OpMark::Kind::kTensor;
  int argument = 0;
  uint64_t hash = 0;
  double norm = 0;  // of a number: its value
  bool setting = false;
  bool outside = false;  // a tensor that no recorded operator wrote
  std::string shape;  // "[8, 4]"
  std::string dtype;
  std::optional<std::string> name;  // of a parameter or buffer, or of an argument that is no tensor
  std::string value;  // of a text, a list or None
};

/// Says where a difference in the inputs comes from, as far as the record shows.
/// Arrays, since there are many.
void to_json(nlohmann::json& json, const MarkDescription& mark);
void from_json(const nlohmann::json& json, MarkDescription& mark);

enum class DifferenceSource {
  outside,  // no recorded operator: input data, or state of an optimizer
  gradient,  // backward
  collective,
  random  // an operator that draws random numbers
};

struct OpDescription {
  std::string name, node, forward;  // forward: in backward, the operator of forward that the node belongs to
  int64_t number = 0;  // among all operators of the run, from 1
  int64_t position = 0;  // among the compared ones, from 1
  bool engine = false, grad = false;  // as in OpEntry
  std::string where;  // "cell 7, line 4"; may be empty
  std::string module, object;  // may be empty
  std::string autocast;  // the dtype that torch.autocast has for the operator; empty where it is off
  bool after_module = false;  // the operator reads no parameter: `module` is the last one of which one was read
  std::vector<MarkDescription> inputs, outputs;
  double divisor = 0;
  DifferenceSource source = DifferenceSource::outside;
  std::string collective, collective_where;  // that wrote the input: "all_reduce #2"; may be empty
  bool in_flight = false;  // the collective was still running when the operator read its result
};

LOCKSTEP_JSON(OpDescription, name, node, forward, number, position, engine, grad, where, module, object, autocast,
              after_module, inputs, outputs, divisor, source, collective, collective_where, in_flight)

/// The same operator as each run has it, by rank index or by run; nothing where a run does not have it.
using OpDescriptions = std::vector<std::optional<OpDescription>>;

/// Describes the operator at `position` of `relevant`; nothing beyond the end. `differs` says by position whether
/// outputs differ between the runs.
std::optional<OpDescription> describe_op(const OpRecord& record, const std::vector<uint32_t>& relevant, size_t position,
                                         const TensorNames& names, const std::vector<bool>& differs);

}  // namespace lockstep::inspect
