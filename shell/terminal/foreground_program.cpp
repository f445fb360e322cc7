#include "shell/terminal/foreground_program.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

constexpr int kNotExecutable = 126, kNotFound = 127;  // exit codes of a shell

/// While it lives, this process ignores SIGINT.
class IgnoredInterrupt {
 public:
  IgnoredInterrupt() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &ignore, &before_);
  }
  ~IgnoredInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  IgnoredInterrupt(const IgnoredInterrupt&) = delete;
  IgnoredInterrupt& operator=(const IgnoredInterrupt&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace

int run_in_foreground(const std::string& command, const std::vector<std::string>& arguments, int input) {
  Launch launch;
  launch.program = "/bin/sh";
  launch.arguments = {"-c", command + " \"$@\"", "sh"};
  launch.arguments.insert(launch.arguments.end(), arguments.begin(), arguments.end());
  launch.input = input;
  launch.as_in_shell = true;
  launch.default_signals = {SIGPIPE, SIGINT};  // the shell ignores these; nohup, SIGHUP
  const IgnoredInterrupt interrupts;
  try {
    return Child(launch).wait().exit_code();
  } catch (const StartError&) {
    return kNotFound;
  }
}

std::string editor_command() {
  for (const char* name : {"VISUAL", "EDITOR"})
    if (const char* value = std::getenv(name); value && *value) return value;
  return "vi";
}

std::optional<std::string> edit_in_editor(const std::string& text) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/lockstep-cell-XXXXXX.cpp";
  Descriptor file(::mkstemps(path.data(), 4));
  if (!file) return {};
  write_all(file.get(), text + "\n");
  file.reset();
  std::optional<std::string> edited;
  if (run_in_foreground(editor_command(), {path}) == 0) {
    edited = protocol::read_file(path).value_or("");
    while (edited->ends_with('\n') || edited->ends_with('\r')) edited->pop_back();
  }
  ::unlink(path.c_str());
  return edited;
}

bool show_in_pager(std::string_view text) {
  const Descriptor file(::memfd_create("lockstep-page", MFD_CLOEXEC));
  if (!file || !write_all(file.get(), text)) return false;
  std::vector<std::string> pagers = {"less -R", "more"};
  if (const char* chosen = std::getenv("PAGER"); chosen && *chosen) pagers.insert(pagers.begin(), chosen);
  for (const std::string& pager : pagers) {
    ::lseek(file.get(), 0, SEEK_SET);
    // A pager that ended with an error, or by Ctrl-C, has shown the text.
    if (const int code = run_in_foreground(pager, {}, file.get()); code != kNotFound && code != kNotExecutable)
      return true;
  }
  return false;
}

}  // namespace lockstep::shell
