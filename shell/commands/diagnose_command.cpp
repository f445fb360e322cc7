// `lockstep diagnose PATH…` judges what a dead job left behind. It needs no session and no LibTorch.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inspectors/remains/job_files.h"
#include "inspectors/remains/judge.h"
#include "protocol/error.h"
#include "protocol/finding.h"
#include "shell/commands/command.h"
#include "shell/commands/print_findings.h"
#include "shell/session/outcome.h"

namespace lockstep::shell {
namespace {

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
  const int code = has_fault(findings) ? kExitFailed : remains.files == 0 ? kExitUsage : kExitOk;
  if (!command.as_json) {
    print_findings(findings);
    return code;
  }
  print_findings_as_json({{"event", "files"},
                          {"files", remains.files},
                          {"dumps", remains.evidence.size()},
                          {"errors", remains.errors.size()},
                          {"stacks", remains.stacks.size()},
                          {"unread", remains.unread}},
                         findings, code);
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
