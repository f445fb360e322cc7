#include "shell/session/out_of_memory.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"

namespace lockstep::shell {

std::vector<std::string> variables_of(SessionCore& session, const RankSet& ranks) {
  std::vector<std::string> result;
  const auto response = session.ask(protocol::ListNames{});
  if (const auto* names = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : names->names)
      if (name.kind == "variable" && (ranks - name.ranks).empty()) result.push_back(name.name);
  return result;
}

std::string named_memory_arguments(const std::vector<std::string>& expressions) {
  std::string arguments;
  for (const std::string& each : expressions)  // JSON's escapes are C++'s, too
    arguments += fmt::format("{}__lockstep::named_memory({}, {})", arguments.empty() ? "" : ", ",
                             nlohmann::json(each).dump(), each);
  return arguments;
}

void explain_out_of_memory(SessionCore& session, const RankSet& ranks) {
  if (session.options().objects) return;  // a file that was built ahead has no object for this
  CellSettings settings;
  settings.ranks = (ranks & session.live_ranks()) - session.busy_ranks();
  if (settings.ranks->empty()) return;
  const std::string arguments = named_memory_arguments(variables_of(session, *settings.ranks));
  session.run_code("__lockstep::out_of_memory({" + arguments + "})", settings, 1);
}

}  // namespace lockstep::shell
