// A record as JSON.
#pragma once
#include "collectives/log/collective_record.h"
#include "protocol/json_fields.h"

namespace lockstep::dist {

LOCKSTEP_JSON(CallPlace, file, line, function)
LOCKSTEP_JSON(CollectiveRecord, group, seq, op, dtype, shape, tensor_count, root, tag, tag_seq, reduce_op, bytes,
              call_site, site_cell, site_offset, place, cell, step, entered_ns, done_ns, state, point_to_point,
              through_c10d, async, thread, entry, on_device, looked_ns, reached_ns, started_ns)

}  // namespace lockstep::dist
