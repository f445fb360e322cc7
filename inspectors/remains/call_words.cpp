#include "inspectors/remains/call_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "inspectors/remains/remains.h"

namespace lockstep::inspect::judging {

std::string place(const std::vector<EvidenceFrame>& frames) {
  const EvidenceFrame* frame = program_frame(frames);
  if (!frame) return {};
  const std::string in = frame->function.empty() || frame->function == "<module>" ? "" : " in " + frame->function;
  return fmt::format("{}:{}{}", frame->file, frame->line, in);
}

std::string input_words(const EvidenceCall& call) {
  if (call.input_shapes.empty()) return {};
  std::string text;
  if (!call.input_dtypes.empty()) text += " " + call.input_dtypes.front();
  text += fmt::format(" [{}]", fmt::join(call.input_shapes.front(), ", "));
  if (call.input_shapes.size() > 1) text += fmt::format(" and {} more", call.input_shapes.size() - 1);
  return text;
}

bool has_description(const EvidenceCall& call) {
  return !call.group_description.empty() && call.group_description != "undefined";
}

std::string group_words(const EvidenceCall& call) {
  return has_description(call) ? call.group_description : "group " + call.group;
}

std::string call_words(const EvidenceCall& call) {
  if (!call.point_to_point) return fmt::format("{} #{} of {}", call.op, call.seq, group_words(call));
  const bool sends = call.op.starts_with("send");
  return fmt::format("{} #{} {} rank {} of {}", call.op, call.seq, sends ? "to" : "from", call.peer, group_words(call));
}

FindingOp op_of(const EvidenceCall& call) {
  return {.name = call.op,
          .seq = call.seq,
          .shape = call.input_shapes.empty() ? std::vector<int64_t>() : call.input_shapes.front(),
          .dtype = call.input_dtypes.empty() ? std::string() : call.input_dtypes.front(),
          .group = has_description(call) ? call.group_description : call.group};
}

}  // namespace lockstep::inspect::judging
