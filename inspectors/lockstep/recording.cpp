#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

Inspection inspection_of(const Recording& run, const LockstepOptions& options, const char* function) {
  return Inspection({.inspector = "lockstep", .object = options.name(), .function = function, .start = run.start},
                    options);
}

void conclude(Inspection& inspection, const Recording& run, Report& report) {
  report.tensors = run.record->operators();
  report.bytes = run.record->bytes_kept();
  inspection.conclude(report);
}

}  // namespace lockstep::inspect
