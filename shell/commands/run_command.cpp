// `lockstep run FILE…`: the cells of session scripts, in order, in one session.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <utility>

#include "protocol/error.h"
#include "shell/built/built_objects.h"
#include "shell/commands/command.h"
#include "shell/commands/session_flags.h"
#include "shell/events/json_writer.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"
#include "shell/session/session.h"
#include "shell/terminal/renderer.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

struct RunOptions {
  std::vector<std::string> files;
  std::string json;
  bool keep_going = false;
  SessionOptions session;
};

/// Of a file that `lockstep build` made: its cells, and from now on its objects.
std::vector<std::vector<ScriptCell>> read_built(const std::string& path, SessionOptions& session) {
  if (session.debug_cells)
    throw UsageError("--debug-cells: the cells of " + path +
                     " are compiled already; give the option to lockstep build");
  if (!session.include_dirs.empty())
    throw UsageError("-I: the cells of " + path + " are compiled already; give the option to lockstep build");
  const auto file = std::make_shared<const BuiltFile>(read_built_file(path));
  session.debug_cells = file->debug_cells;
  if (!session.num_processes && session.gpu_ids.empty()) session.num_processes = file->ranks;
  session.objects = [file, path, started = size_t{0}](EventLoop&, const CompilerOptions& options, const auto&) mutable {
    return std::make_unique<BuiltObjects>(file, path, started++, options);
  };
  std::vector<std::vector<ScriptCell>> scripts;
  for (const BuiltScript& script : file->scripts) scripts.push_back(script.cells);
  return scripts;
}

std::vector<std::vector<ScriptCell>> read_files(RunOptions& options) {
  std::vector<std::vector<ScriptCell>> scripts;
  for (const auto& path : options.files) {
    if (!path.ends_with(".lockstep") && !is_built_file(path)) {
      scripts.push_back(read_script(path));
      continue;
    }
    if (options.files.size() > 1)
      throw UsageError(path + " is a built file, and those run alone: lockstep build puts several scripts into one");
    return read_built(path, options.session);
  }
  return scripts;
}

class ScriptRun : private EventSink {
 public:
  explicit ScriptRun(RunOptions options) : options_(std::move(options)) {}

  int run() {
    const std::vector<std::vector<ScriptCell>> scripts = read_files(options_);
    plan_session(options_.session);

    const int people = options_.json == "-" ? STDERR_FILENO : STDOUT_FILENO;
    output_ =
        std::make_unique<TextOutput>(people, "the output", [this](size_t dropped) { renderer_->drop_output(dropped); });
    renderer_ = std::make_unique<Renderer>(detect_screen(people), [this](std::string_view text) {
      output_->write(text, renderer_->draws_output());
      check(*output_);
    });
    sinks_.add(*renderer_);
    if (!options_.json.empty()) {
      json_ = std::make_unique<JsonWriter>(options_.json);
      sinks_.add(*json_);
      sinks_.add(*this);
    }

    session_ = std::make_unique<Session>(options_.session, sinks_);
    current_ = this;
    {
      const SignalScope signals([](int signal) { current_->on_signal(signal); });
      try {
        for (const auto& script : scripts)
          if (!run_script(script)) break;
      } catch (const StartError& error) {
        if (stopped_) {
          note(kExitInterrupted);
        } else {
          sinks_.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "start_error", .message = error.what()});
          note(kExitNoStart);
        }
      }
      session_->shutdown();
    }
    session_.reset();
    sinks_.take(EndEvent{exit_code_, {{"cells", cells_}, {"failed", failed_}, {"faults", faults_}}});
    return exit_code_;
  }

 private:
  /// False: stop.
  bool run_script(const std::vector<ScriptCell>& script) {
    for (const auto& cell : script) {
      if (cell.markdown) {
        sinks_.take(MarkdownEvent{cell.text});
        continue;
      }
      if (stopped_) return false;
      const auto before = session_->live_ranks();
      renderer_->begin_cell(session_->next_cell(), session_->target_ranks(), cell.title, cell.text);
      const CellOutcome outcome = session_->run(cell.text, cell.title);
      const bool same_session = session_->live_ranks().size() <= before.size();
      const RankSet lost = same_session ? before - session_->live_ranks() : RankSet();
      const Verdict verdict = judge(cell.tags, outcome, lost);
      ++cells_;
      failed_ += verdict.failed ? 1 : 0;
      faults_ += verdict.faults;
      for (const auto& complaint : verdict.complaints)
        sinks_.take(ErrorEvent{.cell = outcome.cell, .ranks = {}, .type = "expectation", .message = complaint});
      if (outcome.before_interrupt) {
        note(code_before_interrupt(cell.tags, *outcome.before_interrupt, before));
        note(kExitInterrupted);
      }
      note(verdict.exit_code);
      if (stopped_) note(kExitInterrupted);
      if (outcome.exit_requested || outcome.status == CellStatus::interrupted || stopped_) return false;
      if (verdict.exit_code != kExitOk && !options_.keep_going) return false;
    }
    return true;
  }

  /// After each event that json_ has written.
  void take(const Event&) override { check(json_->output()); }

  void on_signal(int signal) noexcept {
    stopped_ = true;
    output_->interrupt();
    if (json_) json_->output().interrupt();
    if (signal == SIGINT)
      session_->interrupt();
    else
      session_->leave();
  }

  /// Output that is lost is no success. Where nobody reads any more the run stops, as programs in a pipe do.
  void check(const TextOutput& output) {
    if (output.lost()) note(kExitFailed);
    if (!output.closed() || std::exchange(stopped_for_readers_, true) || !session_) return;
    stopped_ = true;
    session_->leave();
  }

  /// The first thing that went wrong decides.
  void note(int exit_code) {
    if (exit_code_ == kExitOk) exit_code_ = exit_code;
  }

  RunOptions options_;
  EventFork sinks_;
  std::unique_ptr<TextOutput> output_;
  std::unique_ptr<Renderer> renderer_;
  std::unique_ptr<JsonWriter> json_;
  std::unique_ptr<Session> session_;
  int exit_code_ = kExitOk;
  std::atomic<bool> stopped_{false};  // by a signal, or since nobody reads
  bool stopped_for_readers_ = false;
  static inline ScriptRun* current_ = nullptr;  // for the signal handler
  int64_t cells_ = 0, failed_ = 0, faults_ = 0;
};

std::function<int()> set_up_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  options->session.abort_hangs = true;
  app.add_option(
         "file", options->files,
         "Session scripts (.cpp in percent format, .ipynb); - is the standard input. Or one file of lockstep build")
      ->required();
  add_session_options(app, options->session);
  app.add_option("--json", options->json, "Write events as JSON lines to this file; - is the standard output");
  app.add_flag("--keep-going", options->keep_going, "Go on after a cell that failed or brought a fault");
  app.footer(
      "Exit codes: 0 every cell succeeded and there is no fault; 1 a cell failed or an inspector found a fault; 2 bad "
      "usage or unreadable\n"
      "file; 3 the session could not start; 4 a hang or a time-out; 5 a rank died; 130 interrupted. The first that "
      "happened decides.");
  return [options] { return ScriptRun(*options).run(); };
}

const RegisterCommand kRun({"run", "Run session scripts", set_up_run});

}  // namespace
}  // namespace lockstep::shell
