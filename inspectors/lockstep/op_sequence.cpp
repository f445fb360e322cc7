#include "inspectors/lockstep/op_sequence.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "inspectors/fingerprint/fingerprint.h"

namespace lockstep::inspect {
namespace {

uint64_t add(uint64_t hash, uint64_t value) { return combine({hash, hash}, {value, value})[0]; }

uint64_t text_hash(const std::string& text) { return hash_of(text)[0]; }

uint64_t flags_of(const OpEntry& entry) {
  return (entry.grad ? OpSequence::kGrad : 0) | (entry.engine ? OpSequence::kEngine : 0) |
         (entry.random ? OpSequence::kRandom : 0) | (entry.collective ? OpSequence::kCollective : 0) |
         (entry.writes_parameter ? OpSequence::kWritesParameter : 0) | (entry.unread ? OpSequence::kUnread : 0) |
         (entry.is_effect() ? OpSequence::kEffect : 0);
}

OpSequence::Op hashed(const OpRecord& record, const OpEntry& entry) {
  const auto hash_of_mark = [&](const OpMark& mark) { return add(mark.hash, text_hash(record.text(mark.shape))); };
  OpSequence::Op op{.name = name_hash(record, entry), .divisor = entry.divisor, .flags = flags_of(entry)};
  for (size_t i = 0; i < entry.inputs; ++i) {
    const OpMark& mark = record.inputs(entry)[i];
    if (mark.kind == OpMark::Kind::kGenerator) {
      op.generator = add(op.generator, mark.hash);
      continue;
    }
    const uint64_t hash = hash_of_mark(mark);
    op.inputs = add(op.inputs, hash);
    if (mark.kind == OpMark::Kind::kParameter) op.parameters_read = add(op.parameters_read, hash);
    if (mark.kind == OpMark::Kind::kNumber && mark.setting) op.numbers = add(op.numbers, hash);
    if (mark.kind == OpMark::Kind::kTensor && mark.from < 0) op.outside = add(op.outside, hash);
  }
  for (size_t i = 0; i < entry.outputs; ++i) {
    const OpMark& mark = record.outputs(entry)[i];
    const uint64_t hash = hash_of_mark(mark);
    op.outputs = add(op.outputs, hash);
    if (mark.kind == OpMark::Kind::kParameter) op.parameters_written = add(op.parameters_written, hash);
  }
  return op;
}

}  // namespace

uint64_t name_hash(const OpRecord& record, const OpEntry& entry) {
  return add(text_hash(record.text(entry.name)), text_hash(record.text(entry.node)));
}

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

OpSequence sequence_of(const OpRecord& record, const std::vector<uint32_t>& relevant) {
  OpSequence sequence;
  sequence.left_out = record.left_out();
  for (const uint32_t number : relevant) sequence.ops.push_back(hashed(record, record.entries()[number]));
  return sequence;
}

}  // namespace lockstep::inspect
