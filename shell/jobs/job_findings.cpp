#include "shell/jobs/job_findings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "protocol/read_json.h"
#include "shell/events/event.h"
#include "shell/events/finding_text.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_fault_of_inspector(const std::string& line) {
  const json event = protocol::read_json(line);
  // The program may add lines of its own.
  const auto is = [&](const char* name, const char* value) {
    const auto found = event.find(name);
    return found != event.end() && *found == value;
  };
  return event.is_object() && is("event", "finding") && is("severity", "fault");
}

}  // namespace

JobFindings::JobFindings(const std::string& named, const std::string& folder) : named_(named) {
  if (!named.empty()) {
    path_ = fs::absolute(named).string();
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!file_) throw UsageError("--findings " + named + ": " + std::strerror(errno));
  } else if (const char* variable = std::getenv("LOCKSTEP_FINDINGS"); variable && *variable) {
    path_ = variable;
  } else {
    path_ = findings_file(folder);
  }
  std::error_code error;
  const auto size = fs::file_size(path_, error);
  begin_ = error ? 0 : static_cast<int64_t>(size);
}

void JobFindings::report(const std::vector<Finding>& findings, double seconds) const {
  if (findings.empty()) return;
  std::fflush(stdout);
  const Screen screen = detect_screen(STDERR_FILENO);
  std::string text, lines;
  for (const Finding& each : findings) {
    text += finding_text(each, screen);
    json event = to_event_json(FindingEvent{each});
    event["schema"] = 1;
    event["time"] = seconds;
    lines += event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  std::fputs(text.c_str(), stderr);
  if (file_ && !write_all(file_.get(), lines))
    write_message(fmt::format("--findings {}: {}", named_, std::strerror(errno)));
}

std::string findings_file(const std::string& folder) { return folder + "/findings"; }

int faults_of_inspectors_in(const std::string& path, int64_t begin) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return 0;  // reading a pipe or a terminal could wait for ever
  std::ifstream file(path);
  file.seekg(begin);
  int faults = 0;
  for (std::string line; std::getline(file, line);)
    if (is_fault_of_inspector(line)) ++faults;
  return faults;
}

}  // namespace lockstep::shell
