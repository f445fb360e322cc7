#include "tests/lessons/script_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

extern char** environ;

namespace lockstep::test {
namespace {

std::string read_all(int fd) {
  std::string text;
  char buffer[65536];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::filesystem::path path_of(const std::string& script) { return std::filesystem::path(LOCKSTEP_SCRIPTS) / script; }

}  // namespace

void expect_noticed(const std::string& script, const std::string& after, const std::string& right,
                    const std::string& wrong, const std::string& title) {
  const auto copy = spoiled_copy(script, after, right, wrong);
  const auto run = run_script(copy, 2);
  EXPECT_EQ(run.exit_code, 1) << run.shown;
  const auto cell = run.of(title, "cell");
  ASSERT_EQ(cell.size(), 1u) << run.shown;
  EXPECT_EQ(cell[0].at("status"), "error");
  std::filesystem::remove(copy);
}

nlohmann::json ranks(std::initializer_list<int> list) { return std::vector<int>(list); }

std::vector<nlohmann::json> ScriptRun::of(const std::string& title, const std::string& event) const {
  std::vector<nlohmann::json> found;
  for (const auto& cell : events) {
    if (cell.at("event") != "cell" || cell.at("title") != title) continue;
    for (const auto& candidate : events)
      if (candidate.at("event") == event && candidate.value("cell", int64_t{0}) == cell.at("cell"))
        found.push_back(candidate);
    return found;
  }
  ADD_FAILURE() << "no cell ended with the title \"" << title << "\"";
  return found;
}

ScriptRun run_script(const std::string& script, int ranks) {
  std::vector<std::string> arguments{LOCKSTEP_PROGRAM,
                                     "run",
                                     path_of(script),
                                     "-n",
                                     std::to_string(ranks),
                                     "--json",
                                     "-",
                                     "--arg",
                                     "data=" + path_of("data").string()};
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  pid_t pid = 0;
  const int problem = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  ::close(err[1]);
  if (problem != 0) throw std::runtime_error(std::string("cannot start ") + LOCKSTEP_PROGRAM);

  ScriptRun run;
  std::thread reader([&] { run.shown = read_all(err[0]); });
  std::istringstream lines(read_all(out[0]));
  reader.join();
  int status = 0;
  ::waitpid(pid, &status, 0);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (std::string line; std::getline(lines, line);) run.events.push_back(nlohmann::json::parse(line));
  return run;
}

std::string spoiled_copy(const std::string& script, const std::string& after, const std::string& right,
                         const std::string& wrong) {
  std::string text = read_file(path_of(script));
  const size_t from = text.find(after);
  EXPECT_NE(from, std::string::npos) << script << " has no \"" << after << "\"";
  const size_t at = text.find(right, from);
  EXPECT_NE(at, std::string::npos) << script << " has no \"" << right << "\" after \"" << after << "\"";
  text.replace(at, right.size(), wrong);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto copy = std::filesystem::path(::testing::TempDir()) /
                    (std::string("lockstep_") + test->name() + "_" + std::to_string(::getpid()) + ".cpp");
  std::ofstream(copy) << text;
  return copy;
}

}  // namespace lockstep::test
