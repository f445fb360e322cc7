// `lockstep` without a subcommand is the interactive terminal; with --detachable in front of a session that outlives
// it, and with --resume in front of one that does so.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/session_flags.h"
#include "shell/detached/attached_terminal.h"
#include "shell/detached/detachable_start.h"
#include "shell/detached/session_socket.h"
#include "shell/jobs/session_hosts.h"
#include "shell/journal/journal_folder.h"
#include "shell/jupyter/kernel.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/terminal/resumable.h"
#include "shell/terminal/shown_journal.h"
#include "shell/terminal/terminal.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kDetachedTime{3600};

struct TerminalOptions {
  SessionOptions session;
  std::string time;  // of --detachable, as CLI11 keeps it
  std::optional<std::chrono::seconds> detachable;
  std::optional<std::string> resume;  // the id of a session
  bool watches = false, takes_over = false;
};

void check_terminal(const std::string& option) {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1)
    throw UsageError(option + " needs a terminal as standard input and output");
}

/// Shows a screen of what a session has shown before.
void show_end_of_journal(const std::string& id) {
  const Screen screen = detect_screen(STDOUT_FILENO);
  for (const JournalInfo& journal : read_journals())
    if (journal.id == id)
      write_all(STDOUT_FILENO,
                journal_end(journal.path, id, 0, 0, screen, static_cast<size_t>(std::max(1, screen.height))));
}

int resume(const TerminalOptions& options) {
  if (!options.resume->empty()) check_terminal("--resume");
  const DetachableSession session = find_resumable(*options.resume);
  Descriptor keeper = connect_to_keeper(session.path);
  TerminalHello hello = describe_terminal(options.watches ? Asks::watch : Asks::type);
  hello.takes_over = options.takes_over;
  send_json(keeper.get(), Mail::hello, hello);
  answer_of(keeper.get());
  if (options.watches) show_end_of_journal(session.state.id);
  return run_attached(std::move(keeper), options.watches);
}

int run(TerminalOptions& options) {
  if (options.resume) return resume(options);
  const bool starts = asks_for_ranks(options.session);
  choose_hosts(options.session);
  if (!options.detachable) return run_terminal(options.session, starts);
  check_terminal("--detachable");
  DetachableStart start = start_detachable(*options.detachable, describe_terminal(Asks::type));
  if (start.is_over) return 0;
  if (start.keeper) return run_terminal(options.session, starts, std::move(start.keeper), {}, jupyter::open_notebook);
  answer_of(start.terminal.get());
  return run_attached(std::move(start.terminal), /*watches=*/false);
}

std::function<int()> set_up_terminal(CLI::App& app) {
  auto options = std::make_shared<TerminalOptions>();
  add_session_options(app, options->session);
  // A flag whose value needs a '=', as for --python.
  CLI::Option* const detachable =
      app.add_flag("--detachable", options->time,
                   "The session outlives its terminal for an hour, or --detachable=TIME (90s, 30m, 8h, 2d): a lost "
                   "connection and %detach leave it running")
          ->each([options = options.get()](const std::string& value) {
            options->detachable = value == "true" ? kDetachedTime : parse_time(value);
          });
  CLI::Option* const resume =
      app.add_option("--resume", options->resume,
                     "Come back to such a session: its id, the beginning of it, or last: the one that was left last")
          ->type_name("ID")
          ->excludes(detachable);
  CLI::Option* const watch =
      app.add_flag("--watch", options->watches, "With --resume: look on, without typing; q leaves")->needs(resume);
  app.add_flag("--take-over", options->takes_over, "With --resume: from the terminal that is attached")
      ->needs(resume)
      ->excludes(watch);
  return [options, &app] {
    if (options->resume) check_resume_alone(app, {"--watch", "--take-over"});
    return run(*options);
  };
}

const RegisterCommand kTerminal({.name = "", .summary = "interactive terminal", .set_up = set_up_terminal});

}  // namespace
}  // namespace lockstep::shell
