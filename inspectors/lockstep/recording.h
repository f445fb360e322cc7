// A run as lockstep records it, and what the inspections of one and of two runs have in common.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "inspectors/exchange/inspection.h"
#include "inspectors/lockstep/lockstep.h"
#include "inspectors/lockstep/op_compare.h"
#include "inspectors/trace/op_record.h"
#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// One run, as it was recorded.
struct Recording {
  explicit Recording(const LockstepOptions& options)
      : record(std::make_shared<OpRecord>(static_cast<size_t>(std::max<int64_t>(options.max_operators(), 1)))),
        trace(std::make_unique<OpTrace>(record, OpTraceOptions{})) {}
  void end() {
    trace.reset();
    record->end();
    matters = record->that_matter();
    sequence = sequence_of(*record, matters);
  }
  std::shared_ptr<OpRecord> record;
  std::unique_ptr<OpTrace> trace;
  std::vector<uint32_t> matters;
  OpSequence sequence;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

/// The inspection of `run`, which is what ranks compare.
Inspection inspection_of(const Recording& run, const LockstepOptions& options, const char* function);
/// Fills in what the report has of the run, and publishes.
void conclude(Inspection& inspection, const Recording& run, Report& report);

}  // namespace lockstep::inspect
