#include "shell/terminal/foreground_program.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "protocol/descriptor.h"

namespace lockstep::shell {
namespace {
constexpr int kNotExecutable = 126, kNotFound = 127;  // exit codes of a shell
}

int run_in_foreground(const std::string& command, const std::vector<std::string>& arguments, int input) {
  std::vector<std::string> words = {"sh", "-c", command + " \"$@\"", "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &before);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGINT, SIG_DFL);
    if (input >= 0) ::dup2(input, STDIN_FILENO);
    ::execv("/bin/sh", argv.data());
    ::_exit(kNotFound);
  }
  int status = 0;
  while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::sigaction(SIGINT, &before, nullptr);
  if (pid < 0) return kNotFound;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string editor_command() {
  for (const char* name : {"VISUAL", "EDITOR"})
    if (const char* value = std::getenv(name); value && *value) return value;
  return "vi";
}

std::optional<std::string> edit_in_editor(const std::string& text) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/lockstep-cell-XXXXXX.cpp";
  const int fd = ::mkstemps(path.data(), 4);
  if (fd < 0) return {};
  ::close(fd);
  std::ofstream(path) << text << '\n';
  std::optional<std::string> edited;
  if (run_in_foreground(editor_command(), {path}) == 0) {
    std::ostringstream saved;
    saved << std::ifstream(path).rdbuf();
    edited = saved.str();
    while (edited->ends_with('\n') || edited->ends_with('\r')) edited->pop_back();
  }
  ::unlink(path.c_str());
  return edited;
}

bool show_in_pager(std::string_view text) {
  const Descriptor file(::memfd_create("lockstep-page", MFD_CLOEXEC));
  while (file && !text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  std::vector<std::string> pagers = {"less -R", "more"};
  if (const char* chosen = std::getenv("PAGER"); chosen && *chosen) pagers.insert(pagers.begin(), chosen);
  for (const std::string& pager : pagers) {
    ::lseek(file.get(), 0, SEEK_SET);
    if (!file) return false;
    // A pager that ended with an error, or by Ctrl-C, has shown the text.
    if (const int code = run_in_foreground(pager, {}, file.get()); code != kNotFound && code != kNotExecutable)
      return true;
  }
  return false;
}

}  // namespace lockstep::shell
