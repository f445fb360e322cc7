// Keeps the operators of a run for comparison: for each one that the program or a backward node called, its name and
// fingerprints of what it read and wrote. No tensor is kept.
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

/// An input or output of an operator.
struct OpMark {
  /// kNumber is also a text, a list of numbers, and None.
  enum class Kind : uint8_t { kTensor, kParameter, kNumber, kGenerator };
  Kind kind = Kind::kTensor;
  uint8_t dtype = 255;
  uint16_t argument = 0;
  uint32_t shape = 0;  // OpRecord::text()
  uint64_t hash = 0;
  double norm = 0;  // of a number: its value
  uint32_t name = 0, value = 0;  // OpRecord::text(): of an argument that is no tensor; value: of a text, a list or None
  int32_t from = -1;  // the recorded operator that wrote it; -1: none
  bool in_flight = false;  // `from` is a collective that was still running
  bool setting = false;  // a number, a text or a list that is no size: what the program has chosen
  const void* identity = nullptr;  // of a parameter
};

struct OpEntry {
  uint32_t name = 0, node = 0;  // OpRecord::text(); node 0: in forward
  uint32_t site = 0;  // OpRecord::site()
  uint32_t autocast = 0;  // OpRecord::text(): the dtype that torch.autocast has for it; empty where it is off
  uint32_t first = 0;  // among the marks: inputs, then outputs
  uint16_t inputs = 0, outputs = 0;
  int32_t forward = -1;  // in backward: the operator of forward that the node belongs to
  const void* parameter = nullptr;  // findings name the operator by the module of this parameter
  double divisor = 0;  // divisor_of()
  bool after_parameter = false, engine = false, grad = false, random = false, collective = false, hook = false;
  bool writes_parameter = false;
  bool unread = false;  // some input has no memory to read: sparse rows, another library's layout
  /// Whether it is itself part of the outcome of a step: it writes a parameter, is a collective, or works for a
  /// backward node.
  bool is_effect() const { return writes_parameter || collective || (engine && node != 0); }
};

class OpRecord : public OpObserver {
 public:
  /// Keeps the first `most` operators, some 300 bytes each, and counts the others.
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
  /// Returns the first operator that read the result of an all_reduce that was still running; -1: none did.
  int32_t read_too_early() const;
  /// Returns the number of backward passes.
  int64_t backwards() const { return backwards_; }
  /// Returns the collective that an operator called: "all_reduce #2"; empty if it called none.
  std::string collective_of(int32_t entry) const;
  const std::vector<IntegerReduction>& integer_reductions() const { return integer_reductions_.all(); }
  /// Ends the run: reads the results of integer reductions that are left.
  void end() { integer_reductions_.end(); }
  /// Returns the number of operators that were not kept.
  int64_t left_out() const { return count_ - static_cast<int64_t>(entries_.size()); }

  /// Returns the operators that the outcome of the run depends on, in order: the effects (OpEntry::is_effect), and all
  /// that these read from; without any effect every operator. Operators that only one rank runs for itself (a number
  /// that it prints, an accuracy) are not among them, nor those of hooks around a reduction, whose order is not fixed.
  std::vector<uint32_t> relevant() const;
  /// Returns the operators that the first `effects` effects depend on.
  std::vector<uint32_t> relevant_for(size_t effects) const;

 private:
  struct Notes;
  uint32_t number_of(const std::string& text);
  uint32_t number_of(const CallSite& site);
  std::optional<OpMark> mark_of_plain(const c10::IValue& value, const c10::FunctionSchema* schema, size_t argument);
  OpMark mark(const at::Tensor& tensor, size_t argument);
  bool in_flight(int32_t entry);
  void write(const at::Tensor& tensor, int32_t entry, bool unset);

  struct Writer {
    WeakStorage storage;
    int32_t entry;
    bool unset;  // the memory has been allocated and not written
  };

  /// The collective that an operator called, from the collective log.
  struct Flight {
    dist::CollectiveRecord call;
    bool completed = false;
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
  int graph_task_ = -1;  // of the last backward
};

}  // namespace lockstep::inspect
