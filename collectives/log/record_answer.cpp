#include "collectives/log/record_answer.h"

#include "collectives/log/collective_log.h"

namespace lockstep::dist {

protocol::question::Collective describe_to_shell(const CollectiveRecord& record, const std::string& where) {
  constexpr const char* kStates[] = {"entered", "done", "failed"};
  const int64_t now = monotonic_ns();
  protocol::question::Collective answer{
      .group = record.group,
      .seq = record.seq,
      .op = record.op,
      .dtype = record.dtype,
      .shape = record.shape,
      .tensors = record.tensor_count,
      .bytes = record.bytes,
      .cell = record.cell,
      .state = kStates[static_cast<size_t>(record.state)],
      .entered_s_ago = static_cast<double>(now - record.entered_ns) / 1e9,
      .took_us = static_cast<double>((record.done_ns > 0 ? record.done_ns : now) - record.entered_ns) / 1e3};
  if (record.root >= 0) answer.root = record.root;
  if (!record.reduce_op.empty()) answer.reduce_op = record.reduce_op;
  if (!where.empty()) answer.where = where;
  if (record.on_device) answer.stage = stage_name(record.stage());
  if (record.point_to_point) {
    answer.tag = record.tag;
    answer.tag_seq = record.tag_seq;
  }
  return answer;
}

}  // namespace lockstep::dist
