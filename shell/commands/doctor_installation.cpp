#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "protocol/error.h"
#include "protocol/installation.h"
#include "protocol/read_json.h"
#include "protocol/version.h"
#include "shell/commands/doctor.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

constexpr int kOldestLibTorch = 2 * 100 + 11, kNewestLibTorch = 2 * 100 + 15;
const char* const kRange = "2.11 to 2.15";

/// Says how to fix programs that are missing or do not run.
std::string repair() {
  if (protocol::is_wheel())
    return "install the wheel again (pip install --force-reinstall --no-deps, and the file of the wheel)";
  if (protocol::is_installed())
    return "run " + protocol::setup_command() + ", which names missing Debian packages, or install Lockstep again";
  return "build again (cmake --build --preset release), or run tools/setup first if a library is missing";
}

std::string first_lines(const std::string& text, size_t most) {
  size_t end = 0;
  for (size_t line = 0; line < most && end < text.size(); ++line)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  std::string result = text.substr(0, end);
  while (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

/// Returns the JSON object that `PROGRAM --version` prints, or adds the check that says why there is none.
std::optional<json> ask_version(const std::string& program, std::vector<Check>& checks) {
  Check check{.name = program};
  try {
    Launch launch;
    if (program == "lockstep-worker")
      launch = worker_launch();
    else
      launch.program = find_program(program);
    const std::string path = launch.program;
    launch.arguments = {"--version"};
    const ProgramOutput output = output_of(std::move(launch), 60);
    const json versions = json::parse(output.text, nullptr, false);
    if (output.exit_code == 0 && versions.is_object()) {
      check.found = path;
      check.data = versions;
      checks.push_back(check);
      return std::make_optional(versions);  // json converts itself to an optional, too
    }
    check.found = path + " does not run: " + (output.text.empty() ? "it says nothing" : first_lines(output.text, 4));
    check.fix = repair();
  } catch (const StartError& error) {
    check.found = error.what();
    check.fix = repair();
  }
  check.state = CheckState::missing;
  checks.push_back(check);
  return std::nullopt;
}

Check missing_libtorch(const protocol::LibTorch& libtorch) {
  return {.name = "libtorch",
          .state = CheckState::missing,
          .found = libtorch.problem,
          .fix = libtorch.fix,
          .data = {{"supported", kRange}}};
}

Check check_libtorch(const json& worker, const protocol::LibTorch& libtorch) {
  Check check{.name = "libtorch"};
  const std::string version = protocol::text_at(worker, "libtorch"),
                    built_with = protocol::text_at(worker, "libtorch_built_with");
  check.data = {
      {"version", version}, {"built_with", built_with}, {"supported", kRange}, {"folder", libtorch.folder.string()}};
  check.found = "LibTorch " + version + " in " + libtorch.folder.string() + " (supported: " + kRange + ")";
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2 || major * 100 + minor < kOldestLibTorch ||
      major * 100 + minor > kNewestLibTorch) {
    check.state = CheckState::missing;
    check.fix =
        "point LOCKSTEP_LIBTORCH at one of the supported versions, or run tools/setup to get 2.11.0, and build again";
  } else if (!built_with.empty() && protocol::minor_of(version) != protocol::minor_of(built_with)) {
    check.state = CheckState::missing;
    check.found = "LibTorch " + version + " is loaded, and this build was made with " + built_with;
    check.fix = "take LD_LIBRARY_PATH out of the environment if it names another LibTorch" +
                std::string(protocol::is_installed() ? "" : ", or build again with the LibTorch that is there");
  }
  return check;
}

Check check_compiler(const json& compiler, const protocol::LibTorch& libtorch) {
  Check check{.name = "compiler"};
  check.found = protocol::text_at(compiler, "compiler");
  check.data = {{"version", check.found}};
  if (const std::string problem = protocol::text_at(compiler, "problem"); !problem.empty()) {
    if (!libtorch.problem.empty() && problem == libtorch.sentence()) return check;  // a check of its own has it
    check.state = CheckState::missing;
    check.found = problem;
    check.fix = "run " + protocol::setup_command() + ": it gets LibTorch, and installs or names missing packages";
    if (const size_t colon = problem.find(": "); protocol::is_wheel() && colon != std::string::npos) {
      // What is missing is the machine's or another wheel's, and the sentence ends with the fix.
      check.found = problem.substr(0, colon);
      check.fix = problem.substr(colon + 2);
    }
  }
  return check;
}

Check check_wheel() {
  return {
      .name = "compiler",
      .state = CheckState::note,
      .found =
          "none: the wheel watches Python jobs (lockstep run -- torchrun …), has sessions of Python ranks (lockstep "
          "--python), compares checkpoints (lockstep verify) and runs built files (lockstep run FILE.lockstep), and "
          "can't compile C++ cells",
      .fix = std::string("for C++ cells, in sessions and in the ranks of a job: ") + protocol::kGetCells +
             ", and g++ 10 or newer, whose headers cells include (Debian: apt-get install g++; RHEL: dnf install "
             "gcc-c++)",
      .data = {{"run_only", true}, {"wheel", true}}};
}

Check check_run_only() {
  if (protocol::is_wheel()) return check_wheel();
  return {.name = "compiler",
          .state = CheckState::note,
          .found = "none: this installation runs built files (lockstep run FILE.lockstep), and can't compile cells",
          .fix =
              "build files where the compiler is (lockstep build SCRIPT -o FILE.lockstep), or install the package "
              "lockstep in place of lockstep-run and run lockstep-setup",
          .data = {{"run_only", true}}};
}

Check check_header(const json& compiler) {
  Check check{.name = "precompiled header"};
  const std::string state = protocol::text_at(compiler, "header_state"), path = protocol::text_at(compiler, "header");
  check.data = {{"state", state}, {"path", path}};
  check.found = path;
  if (state == "ready") return check;
  check.state = CheckState::note;
  if (state == "damaged") {
    check.found = "damaged: " + path;
    check.fix = "nothing to do: the next session builds it again (about 20 s); rm -r " + path + " if that fails";
  } else {
    check.found = "not built yet for this compiler, LibTorch and build";
    check.fix = "nothing to do: the first session builds it, once (about 20 s)";
  }
  return check;
}

/// `compiler` is null where the installation has none.
Check check_versions(const json& worker, const json& compiler) {
  Check check{.name = "versions"};
  check.found = std::string("lockstep ") + kVersion + ", protocol " + std::to_string(kProtocolVersion);
  for (const auto& [name, versions] :
       {std::pair("lockstep-worker", worker), std::pair("lockstep-compiler", compiler)}) {
    if (versions.is_null()) continue;
    if (protocol::text_at(versions, "lockstep") == kVersion && versions.value("protocol", -1) == kProtocolVersion)
      continue;
    check.state = CheckState::missing;
    check.found += "; " + std::string(name) + " is " + protocol::text_at(versions, "lockstep") + ", protocol " +
                   std::to_string(versions.value("protocol", -1));
    check.fix =
        "the programs are of different builds: build or install all of them again, and see that LOCKSTEP_BIN names "
        "their folder";
  }
  const std::string ours = protocol::text_at(worker, "libtorch_built_with");
  const std::string theirs = compiler.is_null() ? "" : protocol::text_at(compiler, "libtorch");
  if (!ours.empty() && !theirs.empty() && protocol::minor_of(ours) != protocol::minor_of(theirs)) {
    check.state = CheckState::missing;
    check.found += "; cells are compiled for LibTorch " + theirs + ", and the worker is built with " + ours;
    check.fix = "let LOCKSTEP_LIBTORCH name the LibTorch of the build, or build again";
  }
  return check;
}

}  // namespace

ProgramOutput output_of(Launch launch, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  Pipe pipe = make_pipe();
  launch.output = pipe.write.get();
  Child child(launch);
  pipe.write.reset();
  ProgramOutput result;
  pollfd polled{pipe.read.get(), POLLIN, 0};
  do
    if (poll_until({&polled, 1}, deadline) <= 0) return result;  // the child's owner ends it
  while (read_some(pipe.read.get(), result.text) == Reading::bytes);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (const auto end = child.ended_within(left); end && end->signal == 0) result.exit_code = end->code;
  return result;
}

std::vector<Check> check_installation() {
  std::vector<Check> checks;
  const protocol::LibTorch libtorch = protocol::find_libtorch();
  // The worker does not run without LibTorch, and its loader's message names neither the folders nor the fix.
  const std::optional<json> worker = libtorch.problem.empty() ? ask_version("lockstep-worker", checks) : std::nullopt;
  if (!libtorch.problem.empty()) checks.push_back(missing_libtorch(libtorch));
  const bool is_run_only = protocol::is_run_only();
  if (is_run_only) checks.push_back(check_run_only());
  const std::optional<json> compiler = is_run_only ? std::nullopt : ask_version("lockstep-compiler", checks);
  if (worker) checks.push_back(check_libtorch(*worker, libtorch));
  if (compiler) checks.push_back(check_compiler(*compiler, libtorch));
  if (compiler && compiler->contains("header_state")) checks.push_back(check_header(*compiler));
  if (worker && (compiler || is_run_only)) checks.push_back(check_versions(*worker, compiler.value_or(nullptr)));
  return checks;
}

}  // namespace lockstep::shell
