// `lockstep clangd`: clangd for session scripts. Editors start it in place of clangd.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/commands/clangd_proxy.h"
#include "shell/commands/command.h"
#include "shell/commands/doctor.h"
#include "shell/commands/temporary_folder.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kTimeToEnd = std::chrono::seconds(2);

std::string find_clangd() {
  if (const char* named = std::getenv("LOCKSTEP_CLANGD"); named && *named) return named;
  for (const char* name : {"clangd-19", "clangd-20", "clangd-21", "clangd-18", "clangd"})
    if (std::string found = find_in_path(name); !found.empty()) return found;
  throw StartError("there is no clangd in PATH: apt-get install clangd-19, or set LOCKSTEP_CLANGD");
}

/// Returns how cells are compiled, as lockstep-compiler says.
std::vector<std::string> flags_of_cells() {
  Launch launch;
  launch.program = find_program("lockstep-compiler");
  launch.arguments = {"--version"};
  const ProgramOutput output = output_of(std::move(launch), 60);
  const json description = json::parse(output.text, nullptr, false);
  if (output.exit_code != 0 || !description.is_object())
    throw StartError("lockstep-compiler does not run: run lockstep doctor");
  if (description.contains("problem")) throw StartError(description["problem"].get<std::string>());
  auto flags = description.at("flags").get<std::vector<std::string>>();
  flags.push_back("-xc++");
  for (const auto& header : description.at("cell_headers"))
    flags.insert(flags.end(), {"-include", header.get<std::string>()});
  return flags;
}

/// Runs clangd with a pipe to its input, and one from its output or from its messages.
class ClangdProcess {
 public:
  ClangdProcess(const std::vector<std::string>& command, int captured) {
    Pipe to = make_pipe(), from = make_pipe();
    Launch launch;
    launch.program = command.front();
    launch.arguments.assign(command.begin() + 1, command.end());
    launch.input = to.read.get();
    launch.output = from.write.get();
    launch.outputs = {captured};
    launch.as_in_shell = true;
    launch.default_signals = {SIGPIPE};
    process_.emplace(launch);
    input = std::move(to.write);
    output = std::move(from.read);
  }
  ~ClangdProcess() { process_->finish(); }
  ClangdProcess(const ClangdProcess&) = delete;
  ClangdProcess& operator=(const ClangdProcess&) = delete;
  int wait() { return process_->wait().exit_code(); }

  Descriptor input, output;

 private:
  std::optional<Child> process_;
};

std::string wire(const json& message) {
  const std::string text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  return "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

int serve(const std::vector<std::string>& command) {
  ClangdProxy proxy(flags_of_cells());
  ClangdProcess clangd(command, STDOUT_FILENO);
  ::signal(SIGPIPE, SIG_IGN);
  std::string from_editor, from_clangd;
  std::string to_clangd, to_editor;
  const auto send = [&](const ClangdProxy::Messages& messages) {
    for (const json& each : messages.to_clangd) to_clangd += wire(each);
    for (const json& each : messages.to_editor) to_editor += wire(each);
  };
  bool editor_open = true, shut_down = false;
  std::optional<std::chrono::steady_clock::time_point> end;  // clangd may work on for minutes, for nobody
  const auto leave = [&] {
    editor_open = false;
    if (!end) end = std::chrono::steady_clock::now() + kTimeToEnd;
  };
  set_nonblocking(clangd.input.get());
  for (;;) {
    if (!editor_open && to_clangd.empty()) clangd.input.reset();
    pollfd fds[] = {{editor_open ? STDIN_FILENO : -1, POLLIN, 0},
                    {clangd.output.get(), POLLIN, 0},
                    {to_clangd.empty() || !clangd.input ? -1 : clangd.input.get(), POLLOUT, 0},
                    {to_editor.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0}};
    const int ready = poll_until(fds, end);
    if (ready == 0) return shut_down ? 0 : 1;
    if (ready < 0) throw ChannelError(std::string("waiting for messages failed: ") + std::strerror(errno));
    if (fds[0].revents) {
      if (read_some(STDIN_FILENO, from_editor) != Reading::bytes) leave();
      while (auto message = take_editor_message(from_editor)) {
        const std::string method = message->value("method", "");
        shut_down |= method == "shutdown";
        if (method == "exit") leave();
        send(proxy.from_editor(std::move(*message)));
      }
    }
    if (fds[1].revents) {
      if (read_some(clangd.output.get(), from_clangd) != Reading::bytes) break;
      while (auto message = take_editor_message(from_clangd)) send(proxy.from_clangd(std::move(*message)));
    }
    if (fds[2].revents) {
      const ssize_t n = ::write(clangd.input.get(), to_clangd.data(), to_clangd.size());
      if (n < 0 && errno != EAGAIN) to_clangd.clear();  // it has ended; its output says so
      if (n > 0) to_clangd.erase(0, static_cast<size_t>(n));
    }
    if (fds[3].revents) {
      const ssize_t n = ::write(STDOUT_FILENO, to_editor.data(), std::min<size_t>(to_editor.size(), 4096));
      if (n < 0 && errno != EAGAIN) return 1;  // the editor has ended
      if (n > 0) to_editor.erase(0, static_cast<size_t>(n));
    }
  }
  if (!write_all(STDOUT_FILENO, to_editor)) return 1;
  clangd.input.reset();
  return clangd.wait();
}

/// Does `--check=FILE` of a script: clangd checks a copy of what it would see, and names lines of the script.
int check(std::vector<std::string> command, const std::string& file, const std::string& script) {
  const EditorText text(script, MagicRegistry::instance());
  const TemporaryFolder temporary("clangd");
  const std::string& folder = temporary.path();
  const std::string copy = folder + "/" + fs::path(file).filename().string();
  std::ofstream(copy) << text.text();
  json arguments = json::array({"clang++"});
  for (const std::string& flag : flags_of_cells()) arguments.push_back(flag);
  arguments.push_back("-I" + fs::absolute(file).parent_path().string());
  arguments.push_back(copy);
  const std::string directory = fs::absolute(file).parent_path().string();
  std::ofstream(folder + "/compile_commands.json")
      << json::array({{{"directory", directory}, {"file", copy}, {"arguments", arguments}}});
  command.push_back("--check=" + copy);
  command.push_back("--compile-commands-dir=" + folder);
  command.push_back(
      "--tweaks=none");  // refactorings, each tried at each word, whose refusals are no errors of the script
  ClangdProcess clangd(command, STDERR_FILENO);
  clangd.input.reset();
  static const std::regex line_of("\\] Line ([0-9]+): ");
  std::string bytes;
  const auto show = [&](std::string line) {
    std::smatch found;
    if (std::regex_search(line, found, line_of)) {
      const EditorPosition position = text.to_script({std::stoi(found[1].str()) - 1, 0});
      line = found.prefix().str() + "] Line " + std::to_string(position.line + 1) + ": " + found.suffix().str();
    }
    for (size_t at; (at = line.find(copy)) != std::string::npos;) line.replace(at, copy.size(), file);
    std::fprintf(stderr, "%s\n", without_script_names(line).c_str());
  };
  while (read_some(clangd.output.get(), bytes) == Reading::bytes) {
    for (size_t end; (end = bytes.find('\n')) != std::string::npos; bytes.erase(0, end + 1)) show(bytes.substr(0, end));
  }
  if (!bytes.empty()) show(bytes);
  return clangd.wait();
}

std::function<int()> set_up_clangd(CLI::App& app) {
  app.prefix_command();
  app.footer(
      "Arguments are those of clangd. Editors start it in place of clangd; session scripts reach clangd as one C++ "
      "file.\n"
      "  lockstep clangd --check=FILE   reports what clangd finds in a script, and ends\n"
      "clangd is the program that LOCKSTEP_CLANGD names, or clangd-19, another version, or clangd in PATH.");
  return [&app] {
    std::vector<std::string> command = {find_clangd(), "--header-insertion=never"};
    std::string checked;
    for (const std::string& word : app.remaining()) {
      if (word.starts_with("--check="))
        checked = word.substr(8);
      else
        command.push_back(word);
    }
    if (checked.empty()) return serve(command);
    const auto text = protocol::read_file(checked);
    if (!text) throw UsageError(checked + " can't be read");
    if (is_session_script(*text)) return check(std::move(command), checked, *text);
    command.push_back("--check=" + checked);
    ClangdProcess clangd(command, STDOUT_FILENO);
    clangd.input.reset();
    for (std::string output; read_some(clangd.output.get(), output) == Reading::bytes; output.clear())
      std::fwrite(output.data(), 1, output.size(), stdout);
    return clangd.wait();
  };
}

const RegisterCommand kClangd({"clangd", "clangd for editors, which understands session scripts", set_up_clangd});

}  // namespace
}  // namespace lockstep::shell
