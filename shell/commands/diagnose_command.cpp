// `lockstep diagnose PATH…`: what a dead job left behind, judged. Without a session and without LibTorch.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "inspectors/remains/job_files.h"
#include "inspectors/remains/judge.h"
#include "protocol/error.h"
#include "protocol/finding.h"
#include "shell/commands/command.h"
#include "shell/events/event.h"
#include "shell/events/finding_text.h"
#include "shell/session/outcome.h"
#include "shell/text/screen.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

struct DiagnoseCommand {
  std::vector<std::string> paths;
  bool as_json = false;
};

int diagnose(const DiagnoseCommand& command) {
  inspect::Remains remains;
  try {
    remains = inspect::read_remains(command.paths);
  } catch (const inspect::UnreadableEvidence& error) {
    throw UsageError(error.what());
  }
  const std::vector<Finding> findings = inspect::judge(remains);
  const bool faults =
      std::ranges::any_of(findings, [](const Finding& each) { return each.severity == Severity::fault; });
  const int code = faults ? kExitFailed : remains.files == 0 ? kExitUsage : kExitOk;
  if (!command.as_json) {
    const Screen screen = detect_screen(STDOUT_FILENO);
    for (const Finding& each : findings) std::fputs(finding_text(each, screen).c_str(), stdout);
    return code;
  }
  const auto print = [](const json& event) {
    std::puts(event.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  };
  print({{"event", "files"},
         {"files", remains.files},
         {"dumps", remains.evidence.size()},
         {"errors", remains.errors.size()},
         {"stacks", remains.stacks.size()},
         {"unread", remains.unread}});
  for (const Finding& each : findings) print(to_event_json(FindingEvent{each}));
  print({{"event", "end"}, {"exit_code", code}});
  return code;
}

std::function<int()> set_up_diagnose(CLI::App& app) {
  auto command = std::make_shared<DiagnoseCommand>();
  app.add_option("path", command->paths,
                 "Files, and folders with all that is in them: dumps of the Flight Recorder (pickle or JSON, of NCCL "
                 "or Gloo), answers of NCCL's RAS, error.json of torchelastic, logs with tracebacks or stacks of "
                 "faulthandler and py-spy")
      ->required();
  app.add_flag("--json", command->as_json, "JSON lines: files, finding, end");
  app.footer(
      "Consequences come first, the first cause last. The rank of a file is in its name (trace_rank_3) or in that of "
      "a\n"
      "folder (rank3, or 3 as torchrun makes them). Exit codes: 0 nothing is wrong by these files; 1 a fault; 2 bad\n"
      "usage, or nothing of a job in them.");
  return [command] { return diagnose(*command); };
}

const RegisterCommand kDiagnose({"diagnose", "What a dead or stuck job died of, by what it left behind",
                                 set_up_diagnose});

}  // namespace
}  // namespace lockstep::shell
