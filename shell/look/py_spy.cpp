#include "shell/look/py_spy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "protocol/error.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

struct Output {
  std::string text, errors;
  std::optional<ProcessEnd> end;  // nothing: out of time
};

Output output_of(const std::string& program, std::vector<std::string> arguments, std::chrono::milliseconds limit) {
  Pipe output = make_pipe(), errors = make_pipe();
  Launch launch;
  launch.program = "/bin/sh";
  // Its errors go to a pipe of their own.
  launch.arguments = {"-c", fmt::format("exec \"$0\" \"$@\" 2>/dev/fd/{}", errors.write.get()), program};
  launch.arguments.insert(launch.arguments.end(), arguments.begin(), arguments.end());
  launch.inherit = {errors.write.get()};
  launch.output = output.write.get();
  Child child(launch);
  output.write.reset();
  errors.write.reset();
  Output found;
  EventLoop loop;
  int open = 0;
  for (const auto& [fd, text] : {std::pair{output.read.get(), &found.text}, {errors.read.get(), &found.errors}}) {
    ++open;
    loop.watch(fd, [&loop, &open, fd, text] {
      if (read_some(fd, *text) == Reading::bytes) return;
      loop.forget(fd);
      --open;
    });
  }
  const auto deadline = EventLoop::Clock::now() + limit;
  if (loop.run_until([&] { return open == 0; }, deadline)) found.end = child.ended_within(limit);
  return found;
}

}  // namespace

std::string find_py_spy(const std::string& named, const std::vector<std::string>& folders) {
  if (!named.empty()) {
    if (::access(named.c_str(), X_OK) != 0) throw UsageError("--py-spy " + named + ": no such program");
    return named;
  }
  std::vector<std::string> places = folders;
  const char* path = std::getenv("PATH");
  std::istringstream rest(path ? path : "");
  for (std::string folder; std::getline(rest, folder, ':');) places.push_back(folder);
  for (const std::string& folder : places)
    if (const std::string file = folder + "/py-spy"; !folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  return {};
}

std::string py_spy_version(const std::string& program, std::chrono::milliseconds limit) {
  const std::string text = output_of(program, {"--version"}, limit).text;  // "py-spy 0.4.3"
  return std::string(trimmed(text.substr(std::min(text.find(' '), text.size()))));
}

PythonStacks python_stacks(const std::string& program, int64_t pid, bool stops, std::chrono::milliseconds limit) {
  std::vector<std::string> arguments = {"dump", "--json", "--pid", std::to_string(pid)};
  if (!stops) arguments.emplace_back("--nonblocking");
  try {
    const Output output = output_of(program, std::move(arguments), limit);
    if (!output.end) return {.problem = fmt::format("py-spy has not ended within {:.1f} s", limit.count() / 1000.0)};
    if (output.end->exit_code() != 0) {
      const std::vector<std::string_view> lines = lines_of(trimmed(output.errors));
      return {.problem = fmt::format("py-spy {}{}", output.end->str(),
                                     lines.empty() ? "" : ": " + std::string(trimmed(lines.front())))};
    }
    return {.threads = read_py_spy(output.text)};
  } catch (const std::exception& error) {  // one rank's answer, of many
    return {.problem = std::string("py-spy: ") + error.what()};
  }
}

std::vector<PythonThread> read_py_spy(const std::string& text) {
  std::vector<PythonThread> threads;
  for (const nlohmann::json& each : nlohmann::json::parse(text)) {
    PythonThread& thread = threads.emplace_back();
    const auto value = [&](const char* name, auto otherwise) {
      const auto found = each.find(name);
      return found == each.end() || found->is_null() ? otherwise : found->template get<decltype(otherwise)>();
    };
    thread.id = value("os_thread_id", int64_t{0});
    thread.name = value("thread_name", std::string());
    thread.holds_lock = value("owns_gil", false);
    for (const nlohmann::json& frame : each.at("frames"))
      thread.frames.push_back({.function = frame.value("name", ""),
                               .file = frame.value("filename", ""),
                               .line = frame.value("line", int64_t{0})});
  }
  return threads;
}

}  // namespace lockstep::shell
