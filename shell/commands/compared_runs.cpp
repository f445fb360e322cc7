#include "shell/commands/compared_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/package_environment.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kShownOutput = 2000;  // of a run that has failed, in bytes

/// Makes the folder of a run, or takes the recordings of an earlier one out of it.
void prepare(const ComparedRun& run) {
  std::error_code error;
  fs::create_directories(run.folder, error);
  if (error) throw UsageError(run.folder + " can't be made: " + error.message());
  for (fs::directory_iterator entry(run.folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".rec") fs::remove(entry->path(), error);
  if (error) throw UsageError(run.folder + " has recordings that can't be removed: " + error.message());
  protocol::write_at_once((fs::path(run.folder) / "options.json").string(),
                          json({{"steps", run.steps}, {"has_values", run.has_values}, {"noise", run.noise}}).dump());
}

/// Returns the last lines of what a run has written, indented.
std::string end_of_output(const std::string& path) {
  std::string text = protocol::read_file(path).value_or("");
  if (text.size() > kShownOutput) text = text.substr(text.find('\n', text.size() - kShownOutput) + 1);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return "; it has written nothing";
  std::string lines = ". The end of its output:\n  ";
  for (const char each : text) lines += each == '\n' ? std::string("\n  ") : std::string(1, each);
  return lines;
}

bool has_recordings(const std::string& folder) { return fs::exists(fs::path(folder) / "rank-0.rec"); }

}  // namespace

int run_recorded(const ComparedRun& run) {
  prepare(run);
  const std::string log = (fs::path(run.folder) / "output.log").string();
  const Descriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!output || !input) throw UsageError(log + " can't be written: " + std::strerror(errno));
  // In the foreground, as the shell would start it: Ctrl-C ends it, too, and it ends its ranks.
  Launch launch{.program = "/bin/sh",
                .arguments = {"-c", run.command},
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
  if (interrupted != 0) return 128 + interrupted;
  const ProcessEnd end = child.wait();
  if (end.signal != 0 || end.code != 0)
    throw UsageError(fmt::format("{} {}{}", run.what, end.str(), end_of_output(log)));
  if (!has_recordings(run.folder))
    throw UsageError(fmt::format(
        "{} has ended well and recorded nothing: its Python needs torch and lockstep, as for lockstep run; and "
        "recorded are "
        "models in training mode that are called with gradients, up to a step of an optimizer of torch.optim{}",
        run.what, end_of_output(log)));
  return 0;
}

TemporaryFolder::TemporaryFolder() {
  path_ = (fs::temp_directory_path() / "lockstep-compare-XXXXXX").string();
  if (!::mkdtemp(path_.data())) throw StartError(std::string("no temporary folder: ") + std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;  // what can't be removed stays in the folder for temporary files
  fs::remove_all(path_, error);
}

}  // namespace lockstep::shell
