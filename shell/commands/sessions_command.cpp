// `lockstep sessions list|show ID|clean` handles the sessions of this user.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/commands/command.h"
#include "shell/jobs/job_folder.h"
#include "shell/processes/session_records.h"
#include "shell/text/suggest.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

std::string time_text(int64_t seconds) {
  if (seconds <= 0) return "-";
  const std::time_t time = seconds;
  std::tm parts = {};
  char text[32];
  ::localtime_r(&time, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

const char* state_of(const SessionRecord& record) {
  return !record.is_alive ? "dead" : record.is_started ? "running" : "starting";
}

int list(bool as_json) {
  // What was killed at a prompt over a Python job, or with one, has left nothing that could be looked at.
  clean_jobs(protocol::runtime_directories());
  clean_prompts(protocol::runtime_directories());
  const std::vector<SessionRecord> records = read_sessions(protocol::runtime_directories());
  if (as_json) {
    nlohmann::json all = nlohmann::json::array();
    for (const SessionRecord& record : records)
      all.push_back({{"id", record.id},
                     {"state", state_of(record)},
                     {"pid", record.pid},
                     {"ranks", record.ranks},
                     {"backend", record.backend},
                     {"started", record.started},
                     {"cells", record.cells.size()},
                     {"path", record.path}});
    std::puts(all.dump(2).c_str());
    return 0;
  }
  if (records.empty()) {
    std::puts("no session is running, and none has left anything");
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"id", "state", "ranks", "backend", "started", "cells"}};
  bool has_dead = false;
  for (const SessionRecord& record : records) {
    rows.push_back({record.id, state_of(record), record.ranks > 0 ? std::to_string(record.ranks) : "-",
                    record.backend.empty() ? "-" : record.backend, time_text(record.started),
                    std::to_string(record.cells.size())});
    has_dead = has_dead || !record.is_alive;
  }
  std::fputs(table(rows).c_str(), stdout);
  if (has_dead) std::puts("\n`lockstep sessions clean` removes what dead sessions left");
  return 0;
}

/// Returns the session that `id`, or the beginning of an id, means. Throws UsageError.
SessionRecord find_session(const std::string& id) {
  std::vector<std::string> names;
  std::vector<SessionRecord> found;
  for (const SessionRecord& record : read_sessions(protocol::runtime_directories())) {
    names.push_back(record.id);
    if (record.id == id) return record;
    if (record.id.starts_with(id)) found.push_back(record);
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1)
    throw UsageError(id + " begins the ids of " + std::to_string(found.size()) +
                     " sessions: " + fmt::format("{}", fmt::join(names, ", ")));
  throw UsageError("there is no session " + id + did_you_mean(id, names) +
                   "; `lockstep sessions list` shows those that are there");
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) return line;
  return "";
}

int show(const std::string& id) {
  const SessionRecord record = find_session(id);
  std::vector<std::vector<std::string>> rows = {{"session", record.id},
                                                {"state", state_of(record)},
                                                {"pid", std::to_string(record.pid)},
                                                {"started", time_text(record.started)},
                                                {"folder", record.path}};
  if (!record.backend.empty()) rows.push_back({"backend", record.backend});
  if (!record.libtorch.empty()) rows.push_back({"libtorch", record.libtorch});
  if (!record.compiler.empty()) rows.push_back({"compiler", record.compiler});
  for (const WorkerRecord& worker : record.workers)
    rows.push_back({"rank " + std::to_string(worker.rank),
                    fmt::format("pid {}, {}", worker.pid, worker.is_alive ? "alive" : "gone")});
  for (const int64_t cell : record.cells)
    rows.push_back(
        {"cell " + std::to_string(cell), first_line_of(record.path + "/cells/cell_" + std::to_string(cell) + ".cpp")});
  std::fputs(table(rows).c_str(), stdout);
  return 0;
}

int clean() {
  const Cleaned cleaned = clean_sessions(protocol::runtime_directories());
  const std::vector<std::string> jobs = clean_jobs(protocol::runtime_directories());
  for (const std::string& id : cleaned.sessions) std::printf("removed %s\n", id.c_str());
  for (const std::string& id : jobs) std::printf("removed what the Python job %s left\n", id.c_str());
  if (cleaned.workers > 0)
    std::printf("ended %d worker%s of dead sessions\n", cleaned.workers, cleaned.workers == 1 ? "" : "s");
  for (const std::string& problem : cleaned.problems) std::fprintf(stderr, "could not remove %s\n", problem.c_str());
  if (cleaned.sessions.empty() && jobs.empty() && cleaned.problems.empty())
    std::puts("nothing to clean: no dead session has left anything");
  return cleaned.problems.empty() ? 0 : 1;
}

struct Choice {
  std::string id;
  bool json = false;
  std::function<int()> run;
};

std::function<int()> set_up_sessions(CLI::App& app) {
  auto choice = std::make_shared<Choice>();
  app.require_subcommand(1);
  CLI::App& list_command = *app.add_subcommand("list", "Sessions that run, and what dead ones left");
  list_command.add_flag("--json", choice->json, "A JSON list rather than a table");
  list_command.final_callback([choice = choice.get()] { choice->run = [choice] { return list(choice->json); }; });
  CLI::App& show_command = *app.add_subcommand("show", "One session: its processes and its cells");
  show_command.add_option("id", choice->id, "Its id, or the beginning of it")->required();
  show_command.final_callback([choice = choice.get()] { choice->run = [choice] { return show(choice->id); }; });
  CLI::App& clean_command = *app.add_subcommand("clean", "Removes what dead sessions left; touches nothing that runs");
  clean_command.final_callback([choice = choice.get()] { choice->run = clean; });
  return [choice] { return choice->run(); };
}

const RegisterCommand kSessions({"sessions", "Sessions of this user: list, show ID, clean", set_up_sessions});

}  // namespace
}  // namespace lockstep::shell
