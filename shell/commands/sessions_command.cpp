// `lockstep sessions list|show ID|clean` handles the sessions of this user: those that run, what dead ones have left, and
// the journals of all.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/commands/command.h"
#include "shell/commands/journal_views.h"
#include "shell/detached/session_socket.h"
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

/// The keepers of detachable sessions, by the ids of these.
using Keepers = std::map<std::string, KeeperAnswer>;

Keepers ask_keepers() {
  Keepers keepers;
  for (const DetachableSession& each : detachable_sessions()) keepers[each.state.id] = each.state;
  return keepers;
}

/// Returns how the session and its terminals stand, for people.
std::string state_of(const SessionRecord& record, const Keepers& keepers) {
  const auto keeper = keepers.find(record.id);
  return keeper == keepers.end() || !record.is_alive ? state_of(record) : words_of(keeper->second);
}

/// Adds those that have no ranks, and so no folder: a prompt waits for its first cell.
void add_without_ranks(std::vector<SessionRecord>& records, const Keepers& keepers) {
  for (const auto& [id, keeper] : keepers)
    if (std::ranges::find(records, id, &SessionRecord::id) == records.end())
      records.push_back({.id = id, .path = "", .pid = keeper.pid, .is_alive = true});
}

nlohmann::json terminal_json(const KeeperAnswer& keeper) {
  return {{"attached", keeper.terminal.empty() ? nlohmann::json(nullptr) : nlohmann::json(keeper.terminal)},
          {"since", keeper.since},
          {"until", keeper.until > 0 ? nlohmann::json(keeper.until) : nlohmann::json(nullptr)},
          {"watchers", keeper.watchers}};
}

/// One that has ended, by its journal.
struct PastSession {
  JournalInfo journal;
  JournalContent content;
  const char* state() const { return content.is_closed ? "ended" : "killed"; }
};

/// Returns sessions that have left a journal and nothing else.
std::vector<PastSession> past_sessions(const std::vector<SessionRecord>& records) {
  std::vector<PastSession> past;
  for (JournalInfo& journal : read_journals())
    if (!journal.is_open && std::ranges::find(records, journal.id, &SessionRecord::id) == records.end())
      past.push_back({.journal = journal, .content = read_journal(journal.path)});
  return past;
}

int list(bool as_json, bool with_past) {
  // What was killed at a prompt over a Python job, or with one, has left nothing that could be looked at.
  clean_jobs(protocol::runtime_directories());
  clean_prompts(protocol::runtime_directories());
  std::vector<SessionRecord> records = read_sessions(protocol::runtime_directories());
  const Keepers keepers = ask_keepers();
  add_without_ranks(records, keepers);
  const std::vector<PastSession> past = with_past ? past_sessions(records) : std::vector<PastSession>();
  if (as_json) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [journal, content] : past)
      all.push_back({{"id", journal.id},
                     {"state", content.is_closed ? "ended" : "killed"},
                     {"pid", content.description.value("pid", 0)},
                     {"ranks", content.ranks},
                     {"backend", content.backend},
                     {"started", content.started()},
                     {"cells", content.cells()},
                     {"path", journal.path}});
    for (const SessionRecord& record : records) {
      all.push_back({{"id", record.id},
                     {"state", state_of(record)},
                     {"pid", record.pid},
                     {"ranks", record.ranks},
                     {"backend", record.backend},
                     {"started", record.started},
                     {"cells", record.cells.size()},
                     {"path", record.path}});
      if (const auto keeper = keepers.find(record.id); keeper != keepers.end())
        all.back()["terminal"] = terminal_json(keeper->second);
    }
    std::puts(all.dump(2).c_str());
    return 0;
  }
  const auto count =
      with_past ? past.size()
                : static_cast<size_t>(std::ranges::count_if(read_journals(), [&](const JournalInfo& each) {
                    return !each.is_open && std::ranges::find(records, each.id, &SessionRecord::id) == records.end();
                  }));
  if (records.empty() && past.empty()) std::puts("no session is running, and no killed one has left a folder");
  const auto row = [](const std::string& id, const std::string& state, int ranks, const std::string& backend,
                      int64_t started, size_t cells) {
    return std::vector<std::string>{id,
                                    state,
                                    ranks > 0 ? std::to_string(ranks) : "-",
                                    backend.empty() ? "-" : backend,
                                    time_text(started),
                                    std::to_string(cells)};
  };
  std::vector<std::vector<std::string>> rows = {{"id", "state", "ranks", "backend", "started", "cells"}};
  bool has_dead = false;
  for (const PastSession& each : past)
    rows.push_back(row(each.journal.id, each.state(), each.content.ranks, each.content.backend, each.content.started(),
                       each.content.cells()));
  for (const SessionRecord& record : records) {
    rows.push_back(
        row(record.id, state_of(record, keepers), record.ranks, record.backend, record.started, record.cells.size()));
    has_dead = has_dead || !record.is_alive;
  }
  if (rows.size() > 1) std::fputs(table(rows).c_str(), stdout);
  if (has_dead) std::puts("\n`lockstep sessions clean` removes what dead sessions left");
  if (!with_past && count > 0)
    std::printf("%zu session%s that ended %s a journal: `lockstep sessions list --all`\n", count, count == 1 ? "" : "s",
                count == 1 ? "has" : "have");
  return 0;
}

/// A session by what there is of it: what it has in the runtime folder, and its journal.
struct FoundSession {
  std::optional<SessionRecord> record;
  std::optional<JournalInfo> journal;
};

/// Returns the session that `id`, the beginning of an id, or "last" means. Throws UsageError.
FoundSession find_session(const std::string& id) {
  if (id == "last") return {.journal = find_journal(id)};
  std::map<std::string, FoundSession> sessions;
  for (SessionRecord& record : read_sessions(protocol::runtime_directories())) sessions[record.id].record = record;
  for (JournalInfo& journal : read_journals()) sessions[journal.id].journal = journal;
  std::vector<std::string> names, begun;
  for (const auto& [name, session] : sessions) {
    names.push_back(name);
    if (name.starts_with(id)) begun.push_back(name);
  }
  if (const auto found = sessions.find(id); found != sessions.end()) return found->second;
  if (begun.size() == 1) return sessions[begun.front()];
  if (begun.size() > 1)
    throw UsageError(id + " begins the ids of " + std::to_string(begun.size()) +
                     " sessions: " + fmt::format("{}", fmt::join(begun, ", ")));
  throw UsageError("there is no session " + id + did_you_mean(id, names) +
                   "; `lockstep sessions list --all` shows those that are there");
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) return line;
  return "";
}

std::vector<std::vector<std::string>> rows_of(const SessionRecord& record, bool has_journal) {
  std::vector<std::vector<std::string>> rows = {{"session", record.id},
                                                {"state", state_of(record, ask_keepers())},
                                                {"pid", std::to_string(record.pid)},
                                                {"started", time_text(record.started)},
                                                {"folder", record.path}};
  if (!record.backend.empty()) rows.push_back({"backend", record.backend});
  if (!record.libtorch.empty()) rows.push_back({"libtorch", record.libtorch});
  if (!record.compiler.empty()) rows.push_back({"compiler", record.compiler});
  for (const WorkerRecord& worker : record.workers)
    rows.push_back({"rank " + std::to_string(worker.rank),
                    fmt::format("pid {}, {}", worker.pid, worker.is_alive ? "alive" : "gone")});
  if (has_journal) return rows;
  for (const int64_t cell : record.cells)
    rows.push_back(
        {"cell " + std::to_string(cell), first_line_of(record.path + "/cells/cell_" + std::to_string(cell) + ".cpp")});
  return rows;
}

std::vector<std::vector<std::string>> rows_of(const JournalInfo& journal, const JournalContent& content) {
  std::vector<std::vector<std::string>> rows = {
      {"session", journal.id},
      {"state", journal.is_open     ? "running"
                : content.is_closed ? "ended"
                                    : "killed"},
      {"started", time_text(content.started())},
      {"on", content.description.value("host", "") + ", " + content.description.value("directory", "")}};
  if (content.ranks > 0) rows.push_back({"ranks", fmt::format("{}, {}", content.ranks, content.backend)});
  return rows;
}

struct SessionsChoice {
  std::string id;
  std::vector<std::string> ids;  // of clean
  std::string export_to;
  bool json = false, all = false, force = false, journals = false;
  std::function<int()> run;
};

int show(const SessionsChoice& choice) {
  const FoundSession session = find_session(choice.id);
  const bool wants_journal = choice.json || !choice.export_to.empty();
  if (wants_journal && !session.journal)
    throw UsageError("the session " + session.record->id + " has no journal (--no-journal, or LOCKSTEP_JOURNAL=off)");
  if (!choice.export_to.empty()) {
    std::puts(export_journal(*session.journal, choice.export_to, choice.force).c_str());
    return 0;
  }
  if (choice.json) {
    print_journal_lines(*session.journal);
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  if (session.record) rows = rows_of(*session.record, session.journal.has_value());
  if (session.journal && !session.record) rows = rows_of(*session.journal, read_journal(session.journal->path));
  if (session.journal) rows.push_back({"journal", session.journal->path});
  std::fputs(table(rows).c_str(), stdout);
  if (!session.journal) return 0;
  std::puts("");
  std::fflush(stdout);
  print_journal(*session.journal);
  return 0;
}

/// Removes the journals of these sessions, or of all that have ended.
int clean_journals(const SessionsChoice& choice) {
  std::vector<JournalInfo> journals;
  if (choice.ids.empty())
    for (JournalInfo& journal : read_journals())
      if (!journal.is_open) journals.push_back(std::move(journal));
  for (const std::string& id : choice.ids) journals.push_back(find_journal(id));
  bool is_good = true;
  for (const JournalInfo& journal : journals) {
    const std::string problem = remove_journal(journal);
    if (problem.empty())
      std::printf("removed the journal of %s\n", journal.id.c_str());
    else
      std::fprintf(stderr, "could not remove %s\n", problem.c_str());
    is_good = is_good && problem.empty();
  }
  if (journals.empty()) std::puts("nothing to clean: no session that has ended has a journal");
  return is_good ? 0 : 1;
}

int clean() {
  for (const std::string& id : remove_old_journals(journal_limits()))
    std::printf("removed the journal of %s, which is beyond the limits\n", id.c_str());
  const Cleaned cleaned = clean_sessions(protocol::runtime_directories());
  const std::vector<std::string> jobs = clean_jobs(protocol::runtime_directories());
  const std::vector<std::string> sockets = clean_session_sockets();
  for (const std::string& id : cleaned.sessions) std::printf("removed %s\n", id.c_str());
  for (const std::string& id : sockets) std::printf("removed the socket of %s, whose keeper was killed\n", id.c_str());
  for (const std::string& id : jobs) std::printf("removed what the Python job %s left\n", id.c_str());
  if (cleaned.workers > 0)
    std::printf("ended %d worker%s of dead sessions\n", cleaned.workers, cleaned.workers == 1 ? "" : "s");
  for (const std::string& problem : cleaned.problems) std::fprintf(stderr, "could not remove %s\n", problem.c_str());
  if (cleaned.sessions.empty() && jobs.empty() && sockets.empty() && cleaned.problems.empty())
    std::puts("nothing to clean: no dead session has left anything");
  return cleaned.problems.empty() ? 0 : 1;
}

std::function<int()> set_up_sessions(CLI::App& app) {
  auto choice = std::make_shared<SessionsChoice>();
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print the options of all of them");
  CLI::App& list_command = *app.add_subcommand("list", "Sessions that run, and what dead ones left");
  list_command.add_flag("--json", choice->json, "A JSON list rather than a table");
  list_command.add_flag("--all", choice->all, "Sessions that have ended, too, by their journals");
  list_command.final_callback(
      [choice = choice.get()] { choice->run = [choice] { return list(choice->json, choice->all); }; });
  CLI::App& show_command = *app.add_subcommand("show", "One session: its processes, its cells and what they showed");
  show_command.add_option("id", choice->id, "Its id, the beginning of it, or last: of those that have ended")
      ->required();
  CLI::Option* const as_json = show_command.add_flag("--json", choice->json, "Its journal as JSON lines");
  CLI::Option* const exports =
      show_command
          .add_option("--export", choice->export_to,
                      "Write its cells to a script (.cpp, .py), or with their outputs to a notebook (.ipynb)")
          ->type_name("FILE")
          ->excludes(as_json);
  show_command.add_flag("-f,--force", choice->force, "With --export: write over a file that exists")->needs(exports);
  show_command.final_callback([choice = choice.get()] { choice->run = [choice] { return show(*choice); }; });
  CLI::App& clean_command = *app.add_subcommand("clean", "Removes what dead sessions left; touches nothing that runs");
  CLI::Option* const ids =
      clean_command.add_option("id", choice->ids, "Remove the journals of these sessions instead")->type_name("ID");
  clean_command.add_flag("--journals", choice->journals, "Remove the journals of all sessions that have ended instead")
      ->excludes(ids);
  clean_command.final_callback([choice = choice.get()] {
    choice->run = [choice] { return choice->journals || !choice->ids.empty() ? clean_journals(*choice) : clean(); };
  });
  return [choice] { return choice->run(); };
}

const RegisterCommand kSessions({"sessions", "Sessions of this user: list, show ID, clean", set_up_sessions});

}  // namespace
}  // namespace lockstep::shell
