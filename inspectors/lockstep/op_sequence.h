// A run is compared by hashes of what each operator that its outcome depends on has read and written.
#pragma once
#include <cstdint>
#include <vector>

#include "inspectors/trace/op_record.h"

namespace lockstep::inspect {

/// The operators of a run, in order. Their indices are called positions.
struct OpSequence {
  struct Op {
    uint64_t name = 0;  // of the operator and of the backward node that called it
    uint64_t inputs = 0, outputs = 0;  // inputs without generators
    uint64_t parameters_read = 0, parameters_written = 0;
    uint64_t generator = 0;
    uint64_t numbers = 0;  // numbers, texts and lists that are no sizes, among the inputs
    uint64_t outside = 0;  // inputs that no recorded operator wrote, without parameters: input data
    double divisor = 0;  // as in OpEntry
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
  int64_t left_out = 0;  // operators beyond max_operators

  std::vector<uint8_t> bytes() const;
  static OpSequence from_bytes(const std::vector<uint8_t>& bytes);
};

/// `relevant` are the operators to compare, as indices into the entries of `record`.
OpSequence sequence_of(const OpRecord& record, const std::vector<uint32_t>& relevant);

/// Returns the hash that OpSequence::Op has as `name`.
uint64_t name_hash(const OpRecord& record, const OpEntry& entry);

}  // namespace lockstep::inspect
