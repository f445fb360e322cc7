// Records a run for lockstep, and holds what the inspections of one run and of two runs share.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "inspectors/exchange/inspection.h"
#include "inspectors/lockstep/lockstep.h"
#include "inspectors/lockstep/op_sequence.h"
#include "inspectors/trace/op_record.h"
#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// Records from its construction to end().
struct Recording {
  explicit Recording(const LockstepOptions& options)
      : record(std::make_shared<OpRecord>(static_cast<size_t>(std::max<int64_t>(options.max_operators(), 1)))),
        trace(std::make_unique<OpTrace>(record, OpTraceOptions{})) {}
  void end() {
    trace.reset();
    record->end();
    relevant = record->relevant();
    sequence = sequence_of(*record, relevant);
  }
  std::shared_ptr<OpRecord> record;
  std::unique_ptr<OpTrace> trace;
  std::vector<uint32_t> relevant;  // the operators that are compared, as indices into the record's entries
  OpSequence sequence;  // of these
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

Inspection inspection_of(const Recording& run, const LockstepOptions& options, const char* function);
/// Fills in the numbers of `run`, and publishes.
void conclude(Inspection& inspection, const Recording& run, Report& report);

}  // namespace lockstep::inspect
