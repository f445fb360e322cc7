#include "collectives/log/collective_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::dist {

std::string describe(const CollectiveRecord& record) {
  std::string text = record.op;
  if (!record.dtype.empty()) text += fmt::format(" {} [{}]", record.dtype, fmt::join(record.shape, ", "));
  if (record.op == "new_group") text += fmt::format(" [{}]", fmt::join(record.shape, ", "));  // its ranks
  if (record.tensor_count > 1) text += fmt::format(" and {} more", record.tensor_count - 1);
  if (!record.reduce_op.empty()) text += " " + record.reduce_op;
  if (record.root >= 0) {
    const char* word = is_recv(record) ? "from" : record.point_to_point ? "to" : "root";
    text += fmt::format(" {} {}", word, record.root);
  }
  if (record.point_to_point && record.tag != 0) text += fmt::format(" tag {}", record.tag);
  return text;
}

const char* stage_name(CollectiveStage stage) {
  constexpr const char* kNames[] = {"entered", "enqueued", "waiting_for_stream", "ready", "started", "done", "failed"};
  return kNames[static_cast<size_t>(stage)];
}

CollectiveStage CollectiveRecord::stage() const {
  if (state == CollectiveState::done) return CollectiveStage::done;
  if (state == CollectiveState::failed) return CollectiveStage::failed;
  if (!on_device) return CollectiveStage::entered;
  if (started_ns > 0) return CollectiveStage::started;
  if (reached_ns > 0) return CollectiveStage::ready;
  return looked_ns > 0 ? CollectiveStage::waiting_for_stream : CollectiveStage::enqueued;
}

bool is_cell(const std::string& file) { return file.starts_with("<cell ") && file.ends_with('>'); }

std::string CallPlace::str() const {
  if (file.empty() || is_cell(file)) return line_str();
  const std::string in = function.empty() || function == "<module>" ? "" : " in " + function;
  return fmt::format("{}:{}{}", file, line, in);
}

std::string CallPlace::line_str() const {
  if (file.empty()) return {};
  return fmt::format("{}, line {}", is_cell(file) ? file.substr(1, file.size() - 2) : file, line);
}

bool is_send(const CollectiveRecord& record) { return record.point_to_point && record.op.starts_with("send"); }
bool is_recv(const CollectiveRecord& record) { return record.point_to_point && record.op.starts_with("recv"); }

bool fit_together(const CollectiveRecord& a, const CollectiveRecord& b) {
  if (a.op != b.op || a.dtype != b.dtype || a.root != b.root || a.reduce_op != b.reduce_op) return false;
  if (a.op.starts_with("all_to_all")) return true;  // its sizes may differ
  return a.shape == b.shape && a.tensor_count == b.tensor_count;
}

FindingOp to_finding_op(const CollectiveRecord& record) {
  return {.name = record.op, .seq = record.seq, .shape = record.shape, .dtype = record.dtype, .group = record.group};
}

}  // namespace lockstep::dist
