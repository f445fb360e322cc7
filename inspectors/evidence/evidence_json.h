// The JSON of evidence, in which a machine sends to another what it has read there.
#pragma once
#include "inspectors/evidence/evidence.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

LOCKSTEP_JSON(EvidenceFrame, function, file, line)
LOCKSTEP_JSON(EvidenceCall, group, group_description, seq, record, op, backend, variant, signature, point_to_point,
              peer, state, retired, input_shapes, output_shapes, input_dtypes, output_dtypes, created_ns, started_ns,
              completed_ns, duration_ms, timeout_ms, frames)
LOCKSTEP_JSON(EvidenceMember, group_rank, rank, host, pid, device, missing, unresponsive, dead, initializing,
              finalizing, destroyed, aborted, error, remote, counts, last_scheduled, last_started, last_completed)
LOCKSTEP_JSON(EvidenceGroup, name, description, size, ranks, members)
LOCKSTEP_JSON(EvidenceError, rank, group, time_ns, error, remote, peer)
LOCKSTEP_JSON(Evidence, source, origin, version, rank, taken_ns, gathered_s, timeouts, groups, calls, errors)

}  // namespace lockstep::inspect
