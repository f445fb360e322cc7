// %env shows and sets environment variables of the ranks.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/text/table.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

void list(SessionCore& session) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : session.configuration().environment) rows.push_back({name, value});
  session.message(rows.empty()
                      ? "the ranks have the environment that lockstep was started with; %env NAME=VALUE changes it"
                      : table(rows),
                  session.configuration().environment);
}

void show(SessionCore& session, const std::string& name) {
  const auto& changes = session.configuration().environment;
  const auto change = changes.find(name);
  const char* own = std::getenv(name.c_str());
  if (change == changes.end() && !own) throw UsageError(name + " is not set; set it with %env " + name + "=VALUE");
  const std::string value = change != changes.end() ? change->second : own;
  session.message(name + "=" + value, nlohmann::json{{name, value}});
}

CellOutcome env(MagicCall& call) {
  const std::string& text = call.arguments;
  if (text.empty()) {
    list(call.session);
    return {};
  }
  const size_t split = text.find_first_of("= \t");
  const std::string name = text.substr(0, split);
  if (!is_name(name)) throw UsageError("'" + name + "' is no name of an environment variable; write %env NAME=VALUE");
  if (split == std::string::npos) {
    show(call.session, name);
    return {};
  }
  if (name.starts_with("LOCKSTEP_"))
    throw UsageError(name + " is set by Lockstep for each rank; see `lockstep --help` for the option that means it");
  // IPython takes `NAME VALUE` too.
  const size_t begin = text[split] == '=' ? split + 1 : text.find_first_not_of(" \t", split);
  std::string value = begin == std::string::npos ? "" : text.substr(begin);
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
    value = value.substr(1, value.size() - 2);
  protocol::Configure change;
  change.environment[name] = value;
  call.session.configure(change);
  call.session.message(name + "=" + value + " on all ranks", nlohmann::json{{name, value}});
  return {};
}

const RegisterMagic kEnv(
    {.name = "env",
     .summary = "shows or sets environment variables of all ranks",
     .help = "%env lists what was set here, %env NAME shows one, %env NAME=VALUE sets it on all ranks, those that "
             "start later too.\n"
             "Libraries that read a variable only when they start (OMP_NUM_THREADS) see it after %dist_reset.",
     .takes = {"[NAME[=VALUE]]"},
     .line = env,
     .verbatim = true,
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
