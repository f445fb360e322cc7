// What ran, kept for comparison: for every operator that the program called (and every one that a backward node called)
// who it was, and fingerprints of what it read and wrote. No tensor is kept.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/trace/forward_ops.h"
#include "inspectors/trace/integer_reductions.h"
#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// One thing that an operator read or wrote.
struct OpMark {
  enum class Kind : uint8_t { kTensor, kParameter, kNumber, kGenerator };
  Kind kind = Kind::kTensor;
  uint8_t dtype = 255;
  uint16_t argument = 0;
  uint32_t shape = 0;  // OpRecord::text()
  uint64_t hash = 0;
  double norm = 0;  // a number: itself
  int32_t from = -1;  // the operator that wrote it; -1: none that was seen
  bool in_flight = false;  // that is a collective, which was still under way
  bool scalar = false;  // one number, not a list of them or a text
  const void* identity = nullptr;  // of a parameter
};

struct OpEntry {
  uint32_t name = 0, node = 0;  // OpRecord::text(); node 0: in forward
  uint32_t site = 0;  // OpRecord::site()
  uint32_t first = 0;  // among the marks: inputs, then outputs
  uint16_t inputs = 0, outputs = 0;
  int32_t forward = -1;  // in backward: the operator of forward that the node belongs to
  const void* parameter = nullptr;  // by whose module it is named
  double divisor = 0;  // divisor_of()
  bool after_parameter = false, engine = false, grad = false, random = false, collective = false, hook = false;
  bool writes_parameter = false;
  bool unread = false;  // it reads what has no memory to look at: sparse rows, another library's layout
  /// Whether the outcome of a step hangs on it by itself: it writes a parameter, it is a collective, or autograd's own.
  bool is_effect() const { return writes_parameter || collective || (engine && node != 0); }
};

class OpRecord : public OpObserver {
 public:
  /// Keeps `most` operators, some 300 bytes each; of those behind only the number.
  explicit OpRecord(size_t most);
  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override;
  void after(RunningOp& op, const std::vector<c10::IValue>& outputs) override;

  const std::vector<OpEntry>& entries() const { return entries_; }
  const OpMark* inputs(const OpEntry& entry) const { return marks_.data() + entry.first; }
  const OpMark* outputs(const OpEntry& entry) const { return marks_.data() + entry.first + entry.inputs; }
  const std::string& text(uint32_t number) const { return texts_[number]; }
  const CallSite& site(uint32_t number) const { return sites_[number]; }
  int64_t operators() const { return count_; }
  int64_t bytes_kept() const;
  /// The first operator of the program's own that read what an all_reduce was still to write; -1: none did.
  int32_t read_too_early() const;
  /// Backward passes that were seen.
  int64_t backwards() const { return backwards_; }
  /// The collective that an operator called, as "all_reduce #2"; empty where it called none.
  std::string collective_of(int32_t entry) const;
  const std::vector<IntegerReduction>& integer_reductions() const { return integer_reductions_.all(); }
  /// What ran is complete: looks at what reductions of integers left.
  void end() { integer_reductions_.end(); }
  /// Operators beyond those that are kept.
  int64_t left_out() const { return count_ - static_cast<int64_t>(entries_.size()); }

  /// The operators that the outcome hangs on, in order: what writes parameters, what autograd and collectives do, and
  /// all that these read from. Without any of these every operator. What one rank does on the side (a number that it
  /// prints, an accuracy) is not among them; nor is what hooks do around a reduction, whose time is not fixed.
  std::vector<uint32_t> that_matter() const;
  /// Those that the first `effects` of what writes parameters, autograd and collectives hang on.
  std::vector<uint32_t> that_matter_to(size_t effects) const;

 private:
  struct Notes;
  uint32_t number_of(const std::string& text);
  uint32_t number_of(const CallSite& site);
  OpMark mark(const at::Tensor& tensor, size_t argument);
  bool in_flight(int32_t entry);
  void write(const at::Tensor& tensor, int32_t entry, bool unset);

  struct Writer {
    WeakStorage storage;
    int32_t entry;
    bool unset;  // the memory has been handed out and not written
  };

  /// The collective that an operator called, as the collective log has it.
  struct Flight {
    dist::CollectiveRecord call;
    bool landed = false;
  };

  const size_t most_;
  int64_t count_ = 0;
  std::vector<OpEntry> entries_;
  std::vector<OpMark> marks_;
  std::vector<std::string> texts_{""};
  std::unordered_map<std::string, uint32_t> text_numbers_{{"", 0}};
  std::vector<CallSite> sites_{CallSite{}};
  std::map<CallSite, uint32_t> site_numbers_{{CallSite{}, 0}};
  std::unordered_map<const void*, Writer> writers_;  // by storage
  ForwardOps forward_;
  SeenParameters parameters_;
  std::unordered_map<int32_t, Flight> flights_;  // by operator
  IntegerReductions integer_reductions_;
  const void* last_parameter_ = nullptr;
  int64_t backwards_ = 0;
  int graph_task_ = -1;  // the backward that was seen last
};

}  // namespace lockstep::inspect
