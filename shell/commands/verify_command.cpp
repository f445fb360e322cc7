// `lockstep verify A B…` compares whether saved replicas are the same. It has no session: one lockstep-worker, which
// has LibTorch, reads and compares the files.
#include <fmt/format.h>
#include <glob.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/finding.h"
#include "shell/commands/command.h"
#include "shell/commands/print_findings.h"
#include "shell/processes/launcher.h"
#include "shell/session/outcome.h"
#include "shell/text/suggest.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct VerifyCommand {
  std::vector<std::string> paths;
  std::optional<double> rtol, atol;
  bool as_json = false;
};

/// Returns the paths that a pattern stands for, with rank2 before rank10; a path that exists stands for itself.
std::vector<std::string> expanded(const std::string& pattern) {
  std::error_code error;
  if (fs::exists(pattern, error)) return {pattern};
  std::vector<std::string> found;
  if (pattern.find_first_of("*?[") == std::string::npos) {
    std::vector<std::string> names;
    const fs::path folder = fs::path(pattern).has_parent_path() ? fs::path(pattern).parent_path() : fs::path(".");
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      names.push_back(entry->path().filename());
    throw UsageError(
        pattern + ": there is no such file or folder" +
        did_you_mean(fs::path(pattern).filename().string(), names, folder == "." ? "" : folder.string() + "/"));
  }
  glob_t matches = {};
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &matches) == 0)
    for (size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  if (found.empty())
    throw UsageError(pattern + ": no file has a name like this; check the pattern, seen from " +
                     fs::current_path(error).string());
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; });
  return found;
}

/// Returns the reply of a worker that compares these files (worker/verify_saved.h).
json ask_worker(const VerifyCommand& command, const std::vector<std::string>& paths) {
  auto [mine, theirs] = make_socket_pair();
  Launch launch = worker_launch();
  launch.arguments = {"--verify", std::to_string(theirs.get())};
  launch.inherit = {theirs.get()};
  Child worker(launch);
  theirs.reset();
  const auto number = [](const std::optional<double>& value) { return value ? json(*value) : json(nullptr); };
  const std::string request = json({{"paths", paths}, {"rtol", number(command.rtol)}, {"atol", number(command.atol)}})
                                  .dump(-1, ' ', false, json::error_handler_t::replace);
  send_all(mine.get(), request);  // where that fails it has ended, which is reported below
  ::shutdown(mine.get(), SHUT_WR);
  const json result = json::parse(read_to_end(mine.get()), nullptr, false);
  if (result.is_object()) return result;
  // A file that was cut off while it was read ends a process by SIGBUS.
  throw Error("lockstep-worker, which compares the files, " + worker.wait().str() +
              ": was a file written or removed meanwhile, or is there too little memory?");
}

std::vector<std::string> named(const std::vector<std::string>& paths, const RankSet& files) {
  std::vector<std::string> names;
  for (const int file : files)
    if (static_cast<size_t>(file) < paths.size()) names.push_back(paths[static_cast<size_t>(file)]);
  return names;
}

int verify(const VerifyCommand& command) {
  std::vector<std::string> paths;
  for (const std::string& pattern : command.paths)
    for (std::string& each : expanded(pattern)) paths.push_back(std::move(each));
  if (paths.size() < 2)
    throw UsageError("lockstep verify compares two files or more, and there is one: " + paths.front());
  for (const std::optional<double>& tolerance : {command.rtol, command.atol})
    if (tolerance && (!std::isfinite(*tolerance) || *tolerance < 0))
      throw UsageError("--rtol and --atol are numbers that are not negative");
  const json reply = ask_worker(command, paths);
  if (reply.contains("error")) throw UsageError(reply.at("error").get<std::string>());

  const auto findings = reply.at("findings").get<std::vector<Finding>>();
  const int code = has_fault(findings) ? kExitFailed : kExitOk;
  if (!command.as_json) {
    print_findings(findings);
    return code;
  }
  print_findings_as_json({{"event", "files"},
                          {"files", paths},
                          {"tensors", reply.at("tensors")},
                          {"bytes", reply.at("bytes")},
                          {"seconds", reply.at("seconds")}},
                         findings, code, [&](json& event, const Finding& each) {
                           event["files"] = named(paths, each.ranks);
                           event["reference_files"] = named(paths, each.reference_ranks);
                         });
  return code;
}

std::function<int()> set_up_verify(CLI::App& app) {
  auto command = std::make_shared<VerifyCommand>();
  app.add_option("path", command->paths,
                 "Saved replicas: files of torch::save, of Python's torch.save or of safetensors, folders of "
                 "torch.distributed.checkpoint; patterns with * ? [] too")
      ->required();
  app.add_option("--rtol", command->rtol, "Elements may differ by this, relative; without tolerances bit by bit")
      ->type_name("R");
  app.add_option("--atol", command->atol, "Elements may differ by this, absolute")->type_name("A");
  app.add_flag("--json", command->as_json, "JSON lines: files, finding, end");
  app.footer(
      "Files of one kind are compared in everything that they hold; files of different kinds in the tensors that both\n"
      "have. Exit codes: 0 the same; 1 something differs; 2 bad usage or unreadable file; 3 no LibTorch.");
  return [command] { return verify(*command); };
}

const RegisterCommand kVerifySaved({"verify", "Compare saved replicas, models and checkpoints", set_up_verify});

}  // namespace
}  // namespace lockstep::shell
