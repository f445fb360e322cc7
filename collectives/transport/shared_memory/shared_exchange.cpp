#include "collectives/transport/shared_memory/shared_exchange.h"

#include <ATen/ATen.h>
#include <ATen/CPUFunctions.h>

#include <algorithm>
#include <cstring>

#include "protocol/dist_error.h"

namespace lockstep::dist {

using Op = c10d::ReduceOp;
using Stage = SharedRegion::Stage;

namespace {
// An operator on fewer elements than this stays on its thread (at::internal::GRAIN_SIZE).
constexpr int64_t kBlock = 32760;
// With more than two ranks, each rank reduces a part of what is larger; below, all ranks reduce all of it, which saves
// a round.
constexpr size_t kWholeBytes = 16 << 10;

enum class Kind : uint64_t { barrier, all_reduce, reduce_scatter, broadcast, all_gather, gather };

uint64_t signature_of(Kind kind, uint64_t bytes, uint64_t detail) {
  uint64_t hash = static_cast<uint64_t>(kind) + 1;
  for (const uint64_t part : {bytes, detail}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

/// Calls the kernels themselves: modes of the program, its profilers and autograd see one collective, and no operators.
void apply(Op::RedOpType op, at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case Op::SUM:
      at::cpu::add_out(to, a, b);
      return;
    case Op::PRODUCT:
      at::cpu::mul_out(to, a, b);
      return;
    case Op::MIN:
      at::cpu::minimum_out(to, a, b);
      return;
    case Op::MAX:
      at::cpu::maximum_out(to, a, b);
      return;
    case Op::BAND:
      at::cpu::bitwise_and_out(to, a, b);
      return;
    case Op::BOR:
      at::cpu::bitwise_or_out(to, a, b);
      return;
    case Op::BXOR:
      at::cpu::bitwise_xor_out(to, a, b);
      return;
    default:
      throw Error("the reduction is not known here");  // reduces() says so
  }
}

/// Calls `piece(at, size)` for each piece of `total`.
template <typename Piece>
void for_each_piece(int64_t total, int64_t most, const Piece& piece) {
  for (int64_t at = 0; at < total;) {
    const int64_t size = std::min(most, total - at);
    piece(at, size);
    at += size;
  }
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}
}  // namespace

struct SharedExchange::Reduction {
  at::ScalarType type;
  Op::RedOpType op;
  size_t element;  // bytes
  Reduction(at::ScalarType type, Op::RedOpType op) : type(type), op(op), element(c10::elementSize(type)) {}
  uint64_t detail() const { return static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(op); }
};

bool SharedExchange::reduces(at::ScalarType type, Op::RedOpType op) {
  const bool is_float = at::isFloatingType(type);
  switch (op) {
    case Op::SUM:
    case Op::PRODUCT:
    case Op::MIN:
    case Op::MAX:
      return is_float || at::isIntegralType(type, /*includeBool=*/true);
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR:
      return at::isIntegralType(type, /*includeBool=*/true);
    default:
      return false;
  }
}

void SharedExchange::begin(uint64_t call, Deadline deadline) {
  call_ = call;
  deadline_ = deadline;
}

// The half was last used two rounds ago. A rank posts both stages of every round, also those that nobody waits for:
// rounds are compared by their distance, and a counter that stays behind would look new after half of them.
void SharedExchange::begin_round() {
  ++round_;
  int64_t& seq = seqs_[round_ % 2];
  for (int rank = 0; rank < region_->size(); ++rank)
    if (rank != region_->rank()) region_->wait(Stage::done, rank, round_ - 2, seq, deadline_);
  seq = seq_;
  region_->signature(region_->rank(), round_) = call_;
}

void SharedExchange::wait_for(int rank) const {
  if (rank == region_->rank()) return;
  region_->wait(Stage::written, rank, round_, seq_, deadline_);
  if (region_->signature(rank, round_) != call_)
    throw Error("the ranks of the group have called different collectives, or with other sizes, dtypes or roots");
}

void SharedExchange::wait_for_all() const {
  for (int rank = 0; rank < region_->size(); ++rank) wait_for(rank);
}

// Elements `first` to `first + count` of all slots of a round, in the order of the ranks.
void SharedExchange::reduce(const Reduction& reduction, std::byte* to, uint32_t round, int64_t first,
                            int64_t count) const {
  const auto options = at::TensorOptions().dtype(reduction.type);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t size = std::min(kBlock, count - at);
    const auto operand = [&](std::byte* data, int64_t begin) {
      return at::from_blob(data + static_cast<size_t>(begin) * reduction.element, {size}, options);
    };
    at::Tensor result = operand(to, at);
    at::Tensor before = operand(region_->half(0, round), first + at);
    for (int rank = 1; rank < region_->size(); ++rank) {
      apply(reduction.op, result, before, operand(region_->half(rank, round), first + at));
      before = result;
    }
  }
}

void SharedExchange::barrier(Deadline deadline) {
  begin(signature_of(Kind::barrier, 0, 0), deadline);
  begin_round();
  written();
  wait_for_all();
  done(round_);
}

void SharedExchange::all_reduce(void* data, int64_t count, at::ScalarType type, Op::RedOpType op, Deadline deadline) {
  const Reduction reduction(type, op);
  const size_t bytes = static_cast<size_t>(count) * reduction.element;
  begin(signature_of(Kind::all_reduce, bytes, reduction.detail()), deadline);
  auto* const all = static_cast<std::byte*>(data);
  const bool in_parts = region_->size() > 2 && bytes > kWholeBytes;
  for_each_piece(count, static_cast<int64_t>(SharedRegion::kHalfBytes / reduction.element),
                 [&](int64_t at, int64_t size) {
                   std::byte* const piece = all + static_cast<size_t>(at) * reduction.element;
                   begin_round();
                   copy_bytes(own(), piece, static_cast<size_t>(size) * reduction.element);
                   written();
                   wait_for_all();
                   if (in_parts) return all_reduce_in_parts(piece, reduction, size);
                   reduce(reduction, piece, round_, 0, size);
                   done(round_);
                 });
}

// Each rank reduces its part of the piece, and hands it to the others in the next round.
void SharedExchange::all_reduce_in_parts(std::byte* piece, const Reduction& reduction, int64_t count) {
  const auto first = [&](int rank) { return count * rank / region_->size(); };
  const int me = region_->rank();
  const uint32_t inputs = round_;
  begin_round();
  reduce(reduction, own() + static_cast<size_t>(first(me)) * reduction.element, inputs, first(me),
         first(me + 1) - first(me));
  done(inputs);
  written();
  for (int rank = 0; rank < region_->size(); ++rank) {
    wait_for(rank);
    const size_t from = static_cast<size_t>(first(rank)) * reduction.element;
    copy_bytes(piece + from, of(rank) + from, static_cast<size_t>(first(rank + 1) - first(rank)) * reduction.element);
  }
  done(round_);
}

void SharedExchange::reduce_scatter(void* output, std::span<const void* const> inputs, int64_t count,
                                    at::ScalarType type, Op::RedOpType op, Deadline deadline) {
  const Reduction reduction(type, op);
  begin(signature_of(Kind::reduce_scatter, static_cast<uint64_t>(count) * reduction.element, reduction.detail()),
        deadline);
  // A half holds a piece for each rank.
  const auto most = static_cast<int64_t>(SharedRegion::kHalfBytes / inputs.size() / reduction.element);
  for_each_piece(count, most, [&](int64_t at, int64_t size) {
    begin_round();
    for (size_t i = 0; i < inputs.size(); ++i)
      copy_bytes(own() + i * static_cast<size_t>(size) * reduction.element,
                 static_cast<const std::byte*>(inputs[i]) + static_cast<size_t>(at) * reduction.element,
                 static_cast<size_t>(size) * reduction.element);
    written();
    wait_for_all();
    reduce(reduction, static_cast<std::byte*>(output) + static_cast<size_t>(at) * reduction.element, round_,
           region_->rank() * size, size);
    done(round_);
  });
}

void SharedExchange::broadcast(void* data, size_t bytes, int root, Deadline deadline) {
  begin(signature_of(Kind::broadcast, bytes, static_cast<uint64_t>(root)), deadline);
  for_each_piece(static_cast<int64_t>(bytes), SharedRegion::kHalfBytes, [&](int64_t at, int64_t size) {
    std::byte* const piece = static_cast<std::byte*>(data) + at;
    begin_round();
    if (root == region_->rank()) {
      copy_bytes(own(), piece, static_cast<size_t>(size));
      written();
    } else {
      wait_for(root);
      copy_bytes(piece, of(root), static_cast<size_t>(size));
      written();
    }
    done(round_);
  });
}

void SharedExchange::all_gather(std::span<void* const> outputs, const void* input, size_t bytes, Deadline deadline) {
  begin(signature_of(Kind::all_gather, bytes, 0), deadline);
  for_each_piece(static_cast<int64_t>(bytes), SharedRegion::kHalfBytes, [&](int64_t at, int64_t size) {
    begin_round();
    copy_bytes(own(), static_cast<const std::byte*>(input) + at, static_cast<size_t>(size));
    written();
    for (int rank = 0; rank < region_->size(); ++rank) {
      wait_for(rank);
      copy_bytes(static_cast<std::byte*>(outputs[static_cast<size_t>(rank)]) + at, of(rank), static_cast<size_t>(size));
    }
    done(round_);
  });
}

void SharedExchange::gather(std::span<void* const> outputs, const void* input, size_t bytes, int root,
                            Deadline deadline) {
  begin(signature_of(Kind::gather, bytes, static_cast<uint64_t>(root)), deadline);
  for_each_piece(static_cast<int64_t>(bytes), SharedRegion::kHalfBytes, [&](int64_t at, int64_t size) {
    const std::byte* const piece = static_cast<const std::byte*>(input) + at;
    begin_round();
    if (root != region_->rank()) {
      copy_bytes(own(), piece, static_cast<size_t>(size));
      written();
    } else {
      for (int rank = 0; rank < region_->size(); ++rank) {
        wait_for(rank);
        copy_bytes(static_cast<std::byte*>(outputs[static_cast<size_t>(rank)]) + at, rank == root ? piece : of(rank),
                   static_cast<size_t>(size));
      }
      written();
    }
    done(round_);
  });
}

}  // namespace lockstep::dist
