#include "shell/jupyter/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "protocol/read_json.h"
#include "protocol/version.h"
#include "shell/jupyter/code_positions.h"
#include "shell/jupyter/displayed_data.h"
#include "shell/jupyter/message.h"
#include "shell/jupyter/replies.h"
#include "shell/scripts/completeness.h"
#include "shell/session/completion.h"
#include "shell/session/inspection.h"

namespace lockstep::shell::jupyter {

using nlohmann::json;

namespace {
constexpr int64_t kAtEnd = std::numeric_limits<int64_t>::max();  // of the code, where a request names no position
}

json kernel_info(Language language) {
  const bool is_python = language == Language::python;
  const json python = {{"name", "python"},
                       {"version", "3"},
                       {"mimetype", "text/x-python"},
                       {"file_extension", ".py"},
                       {"pygments_lexer", "ipython3"},
                       {"codemirror_mode", {{"name", "ipython"}, {"version", 3}}},
                       {"nbconvert_exporter", "python"}};
  const json cpp = {{"name", "c++"},
                    {"version", "20"},
                    {"mimetype", "text/x-c++src"},
                    {"file_extension", ".cpp"},
                    {"pygments_lexer", "cpp"},
                    {"codemirror_mode", "text/x-c++src"},
                    {"nbconvert_exporter", "script"}};
  const json cpp_help = {{"text", "LibTorch's C++ API"}, {"url", "https://pytorch.org/cppdocs/"}};
  const json python_help = {{"text", "PyTorch's API"}, {"url", "https://docs.pytorch.org/docs/stable/"}};
  return {{"status", "ok"},
          {"protocol_version", kProtocol},
          {"implementation", "lockstep"},
          {"implementation_version", kVersion},
          {"language_info", is_python ? python : cpp},
          {"banner", fmt::format("Lockstep {}: {} on every rank. %help lists the magics.", kVersion,
                                 is_python ? "Python with torch" : "C++20 with LibTorch")},
          {"help_links", json::array({is_python ? python_help : cpp_help})},
          {"supported_features", json::array()},
          {"debugger", false}};
}

json complete(Session& session, const json& content) {
  const std::string code = protocol::text_at(content, "code");
  const int64_t offset = byte_of(code, number_of(content, "cursor_pos", kAtEnd));
  protocol::Completions found{offset, offset, {}};
  try {
    found = complete_cell(session, code, offset);
  } catch (const std::exception&) {
    // The compiler has ended, or the ranks can't start: a cell that needs them says so.
  }
  const int64_t begin = character_of(code, found.begin), end = character_of(code, found.end);
  json matches = json::array(), types = json::array();
  std::set<std::string_view> seen;  // overloads have the same text
  for (const protocol::Completion& completion : found.completions) {
    if (!seen.insert(completion.text).second) continue;
    matches.push_back(completion.text);
    types.push_back({{"start", begin},
                     {"end", end},
                     {"text", completion.text},
                     {"type", completion.kind},
                     {"signature", completion.detail}});
  }
  return {{"status", "ok"},
          {"matches", std::move(matches)},
          {"cursor_start", begin},
          {"cursor_end", end},
          {"metadata", {{"_jupyter_types_experimental", std::move(types)}}}};
}

json inspect(Session& session, const json& content) {
  const std::string code = protocol::text_at(content, "code");
  const int64_t offset = byte_of(code, number_of(content, "cursor_pos", kAtEnd));
  std::string text;
  json fields = json::object();
  try {
    const Description found = describe_at(session, code, offset, number_of(content, "detail_level", 0) > 0);
    if (found.found) {
      text = found.text;
      fields = found.data;
    }
    std::string overloads;
    for (const protocol::Signature& signature : signatures_in_cell(session, code, offset))
      overloads += signature.label + "\n";
    if (!overloads.empty()) text = overloads + (text.empty() ? "" : "\n" + text);
  } catch (const std::exception&) {
    // The reason is as in complete().
  }
  json data = json::object();
  if (!text.empty()) data = {{"text/plain", text}, {kInspectionMime, fields}};
  return {{"status", "ok"}, {"found", !text.empty()}, {"data", std::move(data)}, {"metadata", json::object()}};
}

json is_complete(Session& session, const json& content) {
  const std::string code = protocol::text_at(content, "code");
  Completeness found = completeness_of_cell(session, code);
  const CellMagics magics = cell_magics_of(code);
  if (magics == CellMagics::alone || (magics == CellMagics::with_body && !code.ends_with("\n")))
    found.status = TextStatus::incomplete;  // as in IPython, a blank line ends the body
  json answer = {{"status", to_string(found.status)}};
  if (found.status == TextStatus::incomplete)
    answer["indent"] = std::string(2 * static_cast<size_t>(std::max(0, found.indent)), ' ');
  return answer;
}

}  // namespace lockstep::shell::jupyter
