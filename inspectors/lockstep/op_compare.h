// Several runs of the same operators, on several ranks or one after the other, compared: where do they part?
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "inspectors/trace/op_record.h"
#include "inspectors/trace/tensor_names.h"

namespace lockstep::inspect {

/// What is compared of one run: hashes, by place among the operators that matter.
struct OpSequence {
  struct Op {
    uint64_t name = 0;  // with that of the node
    uint64_t inputs = 0, outputs = 0;  // generators not among the inputs
    uint64_t parameters_read = 0, parameters_written = 0;
    uint64_t generator = 0;
    uint64_t numbers = 0;  // plain ones among the inputs: neither lists nor texts
    uint64_t outside = 0;  // inputs that no operator wrote, parameters left out: data as it comes in
    double divisor = 0;  // OpEntry
    uint64_t flags = 0;  // kGrad, …
    bool operator==(const Op&) const = default;
  };
  enum Flags : uint64_t {
    kGrad = 1,
    kEngine = 2,
    kRandom = 4,
    kCollective = 8,
    kWritesParameter = 16,
    kUnread = 32,
    kEffect = 64
  };

  std::vector<Op> ops;
  int64_t left_out = 0;

  std::vector<uint8_t> bytes() const;
  static OpSequence from_bytes(const std::vector<uint8_t>& bytes);
};

/// The places (among those of `matters`) at which the runs part, each the first of its kind.
struct Partings {
  size_t common = 0;  // places at which all ran the same operators
  std::optional<size_t> computation;  // equal inputs, other outputs
  std::optional<size_t> parameter;  // a graph is made of a parameter that differs
  std::optional<size_t> written;  // a parameter that was equal is no longer when it has been written
  std::optional<size_t> order;  // other operators
  std::optional<size_t> input;  // other inputs
  std::optional<size_t> drawn;  // other random numbers, from generators in other states
  std::optional<size_t> outside;  // other data from outside
  std::vector<size_t> numbers;  // all at which plain numbers differ that the program gave
  std::optional<size_t> divisor;  // a loss is divided by other numbers, and nothing makes up for that

  /// The first that a fault can be made of.
  std::optional<size_t> first_fault() const;
};

/// How far the runs have the same effects (OpEntry::is_effect), in order.
struct CommonEffects {
  size_t count = 0;
  std::vector<bool> through;  // by run: it has no more than these, and others have
  bool all = true;  // none has more
};

CommonEffects common_effects(const std::vector<OpSequence>& runs);

OpSequence sequence_of(const OpRecord& record, const std::vector<uint32_t>& matters);
Partings find_partings(const std::vector<OpSequence>& runs);

/// What a reader wants to know of the operator at a place: a JSON object with name, node, module, where, inputs,
/// outputs. `differs`: whether the outputs at a place differ between runs, to tell where a difference came from.
nlohmann::json describe_place(const OpRecord& record, const std::vector<uint32_t>& matters, size_t place,
                              const TensorNames& names, const std::vector<bool>& differs);

/// By name, every operator that ran.
std::vector<uint64_t> names_of_all(const OpRecord& record);
/// The first place (among those of `matters`) whose operator is not in `ran` behind those before it; the last one
/// otherwise.
size_t first_not_in(const OpRecord& record, const std::vector<uint32_t>& matters, const std::vector<uint64_t>& ran);

/// By place: whether outputs differ.
std::vector<bool> outputs_that_differ(const std::vector<OpSequence>& runs, size_t common);

}  // namespace lockstep::inspect
