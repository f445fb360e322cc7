#include "shell/commands/compared_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/package_environment.h"
#include "shell/processes/launcher.h"
#include "shell/text/text.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
namespace compare = inspect::compare;

constexpr size_t kShownOutput = 2000;  // of a run that has failed, in bytes

constexpr std::string_view kRecorder = "lockstep compare: ";  // before what a rank's recorder says in its output

/// Returns the last lines of what a run has written, indented, and before them those of its recorder: what other ranks say
/// when one ends comes after its reason.
std::string end_of_output(const std::string& path) {
  const std::string text = protocol::read_file(path).value_or("");
  if (text.find_first_not_of('\n') == std::string::npos) return "; it has written nothing";
  const size_t shown_at = text.size() > kShownOutput ? text.find('\n', text.size() - kShownOutput) + 1 : 0;
  std::string said;
  for (const std::string_view each : lines_of(std::string_view(text).substr(0, shown_at)))
    if (each.find(kRecorder) != std::string_view::npos) said += fmt::format("\n  {}", each);
  std::string lines = said.empty() ? "" : ". Its recorder:" + said;
  lines += ". The end of its output:";
  for (const std::string_view each : lines_of(std::string_view(text).substr(shown_at)))
    lines += fmt::format("\n  {}", each);
  return lines;
}

}  // namespace

int run_recorded(const std::string& what, const std::string& command, const compare::RecordedRun& run) {
  compare::prepare_run(run);
  const std::string log = compare::path_of_output(run.folder);
  const Descriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!output || !input) throw UsageError(log + " can't be written: " + std::strerror(errno));
  // It runs in the foreground, as the shell would start it: Ctrl-C ends it, too, and it ends its ranks.
  Launch launch{.program = "/bin/sh",
                .arguments = {"-c", command},
                .input = input.get(),
                .output = output.get(),
                .as_in_shell = true};
  add_package(launch.environment);
  launch.environment["LOCKSTEP_COMPARE"] = fs::absolute(run.folder).string();
  launch.environment["TORCHDYNAMO_DISABLE"] = "1";  // what is compiled has no modules

  JobSignals signals;
  Child child(launch);
  signals.pass_on_to(child.pidfd());
  int interrupted = 0;
  for (std::optional<ProcessEnd> end; !(end = child.ended());) {
    pollfd polled[] = {{child.pidfd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll_until(polled);
    while (const auto signal = signals.next()) interrupted = *signal;
  }
  if (interrupted != 0) {
    write_message(what + " was interrupted" + end_of_output(log));
    return 128 + interrupted;
  }
  const ProcessEnd end = child.wait();
  if (end.signal != 0 || end.code != 0) throw UsageError(fmt::format("{} {}{}", what, end.str(), end_of_output(log)));
  if (!compare::has_recordings(run.folder))
    throw UsageError(
        fmt::format("{} has ended well and recorded nothing: its Python needs torch and lockstep, as for lockstep run, "
                    "and recorded are models in training mode that are called with gradients, up to a step of an "
                    "optimizer of torch.optim. A program in C++ records by an inspect::CompareRecorder{}",
                    what, end_of_output(log)));
  return 0;
}

}  // namespace lockstep::shell
