#include "inspectors/remains/error_file.h"

#include "inspectors/evidence/json_value.h"
#include "inspectors/remains/stack_text.h"

namespace lockstep::inspect {

bool is_error_file(std::string_view head) {
  return head.starts_with('{') && head.find("\"message\"") != std::string_view::npos &&
         head.find("\"entries\"") == std::string_view::npos && head.find("\"nccl_version\"") == std::string_view::npos;
}

RankError read_error_file(std::string_view bytes, const std::string& origin, std::optional<int> rank,
                          ReadingLimit limit) {
  const nlohmann::json file = parse_json(bytes, origin, limit);
  const JsonAt root{file, origin};
  RankError error{.rank = rank.value_or(-1), .type = {}, .message = {}, .time_s = 0, .frames = {}, .origin = origin};
  const JsonAt message = root.at("message");
  std::string text;
  if (message.value.is_object()) {
    text = message.at("message").text();
    if (const auto* found = message.find("extraInfo")) {
      const JsonAt extra{*found, message.where + ".extraInfo"};
      if (extra.find("timestamp")) error.time_s = extra.at("timestamp").integer();
      if (extra.find("py_callstack")) error.frames = traceback_frames(extra.at("py_callstack").text());
    }
  } else {
    text = message.text();
    if (root.find("timestamp")) error.time_s = root.at("timestamp").integer();
  }
  text = text.substr(0, text.find('\n'));
  const size_t colon = text.find(": ");
  error.type = colon == std::string::npos ? "an error" : text.substr(0, colon);
  error.message = colon == std::string::npos ? text : text.substr(colon + 2);
  return error;
}

}  // namespace lockstep::inspect
