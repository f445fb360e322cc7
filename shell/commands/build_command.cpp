// `lockstep build SCRIPT… -o FILE` compiles the cells of session scripts ahead, so that `lockstep run FILE` needs no
// compiler. The scripts run through a session in which no cell runs (shell/processes/rehearsal.h), and what it asks the
// compiler is recorded (shell/built/recording.h); then once more for each early end that is expected and that later cells
// depend on.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <set>

#include "protocol/error.h"
#include "protocol/installation.h"
#include "shell/built/recording.h"
#include "shell/commands/command.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/rehearsal.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"
#include "shell/session/session.h"
#include "shell/terminal/renderer.h"
#include "shell/text/text.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

struct BuildOptions {
  std::vector<std::string> files;
  std::string output;
  SessionOptions session;
};

/// Collects what a rehearsal reports: the errors of the cell at hand, and how many ranks there were.
class Report : public EventSink {
 public:
  explicit Report(Renderer* progress) : progress_(progress) {}
  void take(const Event& event) override {
    if (const auto* session = std::get_if<SessionEvent>(&event)) {
      ranks = std::max(ranks, static_cast<int>(session->ranks.size()));
      progress_ = nullptr;
    } else if (std::holds_alternative<ErrorEvent>(event)) {
      errors.push_back(event);
    } else if (progress_ && std::holds_alternative<MessageEvent>(event)) {
      progress_->take(event);  // the compiler builds its header
    }
  }

  int ranks = 1;
  std::vector<Event> errors;

 private:
  Renderer* progress_;
};

/// Whether what comes after the step `at` may be another text, or mean something else, when `missing` is not there.
bool matters(const BuiltSteps& steps, size_t at, const std::set<std::string>& missing) {
  const auto& failed = std::get<protocol::Compile>(steps[at]->request);
  for (size_t i = at + 1; i < steps.size(); ++i) {
    const auto* later = std::get_if<protocol::Compile>(&steps[i]->request);
    if (!later) continue;
    if (later->number == failed.number) return true;  // another part of the cell, or what runs after it
    if (missing.empty()) continue;
    if (later->text.find('#') != std::string::npos) return true;
    for (const std::string& name : missing)
      if (has_word(later->text, name.substr(name.rfind(':') + 1))) return true;
  }
  return false;
}

/// The early ends that later cells depend on of the cells with these numbers.
std::vector<EarlyEnd> early_ends_in(const Take& take, const std::set<int64_t>& numbers) {
  std::vector<EarlyEnd> ends;
  for (const BuiltSteps& steps : take.sessions)
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto* cell = std::get_if<protocol::Compile>(&steps[i]->request);
      if (!cell || !steps[i]->settle || !numbers.contains(cell->number)) continue;
      const auto& objects = std::get<protocol::Compiled>(steps[i]->answer).objects;
      if (objects.empty()) continue;
      const std::vector<protocol::Step>& own = objects.front().steps;
      std::set<std::string> missing;
      for (size_t step = own.size(); step-- > 0;) {
        const bool defines = !own[step].names.empty();
        missing.insert(own[step].names.begin(), own[step].names.end());
        if ((!defines && step > 0) || !matters(steps, i, missing)) continue;
        const auto add = [&](const RankSet& ranks) {
          const EarlyEnd end{cell->number, cell->cell, ranks, static_cast<int64_t>(step)};
          if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
        };
        add(RankSet{cell->ranks.ranks().back()});
        // On two ranks that gives the same views: one rank that stops, and one that does not.
        if (cell->ranks.size() > 2) add(cell->ranks);
      }
    }
  return ends;
}

class Build {
 public:
  explicit Build(BuildOptions options)
      : options_(std::move(options)),
        screen_(detect_screen(STDOUT_FILENO)),
        output_(STDOUT_FILENO),
        renderer_(screen_, [this](std::string_view bytes) { output_.write(bytes); }),
        file_(std::make_shared<BuiltFile>()),
        recorder_(file_) {}

  int run() {
    options_.session.rehearsal.emplace();
    plan_session(options_.session);
    for (const auto& path : options_.files) file_->scripts.push_back({path, read_cpp_script(path)});
    file_->ranks = options_.session.num_processes;
    file_->debug_cells = options_.session.debug_cells;
    current_ = this;
    const SignalScope signals([](int signal) { current_->on_signal(signal); });
    try {
      rehearse_all();
    } catch (const StartError&) {
      if (!stopped_) throw;
    }
    if (stopped_) return kExitInterrupted;
    if (failed_ > 0) {
      say(Style::fault, signs(screen_).fault,
          fmt::format("{} of {} do{} not compile; {} is not written", failed_, of_cells(cells_),
                      failed_ == 1 ? "es" : "", options_.output));
      return kExitFailed;
    }
    write_built_file(*file_, options_.output);
    std::error_code error;
    say(Style::good, signs(screen_).good,
        fmt::format("{}: {} for {} rank{}, {:.1f} MB", options_.output, of_cells(cells_), file_->takes.front().ranks,
                    file_->takes.front().ranks == 1 ? "" : "s",
                    static_cast<double>(fs::file_size(options_.output, error)) / 1e6));
    return output_.lost() ? kExitFailed : kExitOk;
  }

 private:
  static std::string of_cells(int64_t count) { return fmt::format("{} cell{}", count, count == 1 ? "" : "s"); }
  void say(Style style, std::string_view sign, const std::string& text) {
    output_.write(paint(screen_, style, std::string(sign)) + " " + without_controls(text) + "\n");
  }

  void rehearse_all() {
    rehearse(std::nullopt);
    if (failed_ > 0 || stopped_) return;
    for (const EarlyEnd& end : early_ends_in(file_->takes.front(), expected_to_fail_)) {
      rehearse(end);
      if (stopped_) return;
    }
  }

  /// The scripts once, as a take of the file.
  void rehearse(const std::optional<EarlyEnd>& early_end) {
    Take take;
    Report report(early_end ? nullptr : &renderer_);
    SessionOptions options = options_.session;
    options.rehearsal = Rehearsal{early_end};
    options.objects = [&](EventLoop& loop, const CompilerOptions& compiler, const auto& progress) {
      return std::make_unique<RecordingSource>(
          source(early_end.has_value(), take.sessions.size(), loop, compiler, progress), recorder_, take);
    };
    Session session(options, report);
    session_ = &session;
    struct Leave {
      std::atomic<Session*>& session;
      ~Leave() { session = nullptr; }
    } leave{session_};
    for (size_t i = 0; i < file_->scripts.size() && !stopped_; ++i)
      for (const ScriptCell& cell : file_->scripts[i].cells) {
        if (cell.markdown) continue;
        if (stopped_) break;
        run_cell(session, report, cell, options_.files[i], early_end.has_value());
      }
    if (!early_end && !stopped_ && take.sessions.empty()) session.start();  // no cell has started it
    session.shutdown();
    take.ranks = report.ranks;
    file_->takes.push_back(std::move(take));
  }

  std::unique_ptr<ObjectSource> source(bool known, size_t index, EventLoop& loop, const CompilerOptions& compiler,
                                       const TakeProgress& progress) {
    const auto start = [&loop, compiler, progress] {
      CompilerOptions options = compiler;
      options.session_directory = protocol::kBuiltSession;
      return std::make_unique<CompilerService>(loop, options, progress);
    };
    if (!known) return start();
    protocol::CompilerReady ready;
    ready.versions = file_->versions;
    return std::make_unique<RecordedFirst>(recorder_.shared(), index, ready, start);
  }

  void run_cell(Session& session, Report& report, const ScriptCell& cell, const std::string& file, bool is_known) {
    const int64_t number = session.next_cell();
    report.errors.clear();
    const CellOutcome outcome = session.run(cell.text, cell.title);
    if (is_known) return;
    ++cells_;
    const auto is_tagged = [&](const auto& means) { return std::any_of(cell.tags.begin(), cell.tags.end(), means); };
    const bool may_fail = is_tagged([](const Tag& tag) { return tag.name == "raises-exception"; });
    // Other findings leave a cell running.
    const bool may_hang = is_tagged([](const Tag& tag) {
      return tag.name == "expects-finding" &&
             (tag.value.empty() || tag.value.starts_with("hang") || tag.value.starts_with("collectives"));
    });
    if (may_fail || may_hang) expected_to_fail_.insert(number);
    if (report.errors.empty() || may_fail || stopped_) return;
    ++failed_;
    const std::string where = cell.line > 0 ? fmt::format("{}:{}", file, cell.line) : file;
    const std::string title = cell.title.empty() ? "" : " (" + cell.title + ")";
    renderer_.take(
        MessageEvent{0, fmt::format("{}: cell {}{}", where, outcome.cell > 0 ? outcome.cell : number, title), nullptr});
    for (const Event& error : report.errors) renderer_.take(error);
  }

  void on_signal(int signal) noexcept {
    stopped_ = true;
    Session* session = session_;
    if (!session) return;
    if (signal == SIGINT)
      session->interrupt();
    else
      session->leave(signal);
  }

  BuildOptions options_;
  const Screen screen_;
  TextOutput output_;
  Renderer renderer_;
  std::shared_ptr<BuiltFile> file_;
  TakeRecorder recorder_;
  std::set<int64_t> expected_to_fail_;  // numbers of cells
  int64_t cells_ = 0, failed_ = 0;
  std::atomic<bool> stopped_{false};
  std::atomic<Session*> session_{nullptr};
  static inline Build* current_ = nullptr;  // for the signal handler
};

std::function<int()> set_up_build(CLI::App& app) {
  auto options = std::make_shared<BuildOptions>();
  app.add_option("file", options->files, "Session scripts (.cpp in percent format, .ipynb); - is the standard input")
      ->required();
  app.add_option("-o,--output", options->output, "The file to write")->required()->type_name("FILE.lockstep");
  app.add_option("-n,--num-processes", options->session.num_processes,
                 "How many ranks run it, where cells depend on that; default: two")
      ->type_name("N");
  app.add_flag("--debug-cells", options->session.debug_cells, "Compile all cells with full debug information, for gdb");
  app.add_option("--compile-timeout", options->session.compile_timeout_s, "Seconds that compiling a cell may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--compile-memory", options->session.compile_memory_mb,
                 "Megabytes of memory that compiling a cell may take; 0: no limit (3072)")
      ->type_name("MB")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-I,--include-dir", options->session.include_dirs,
                 "Folder of headers that cells include; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.footer(
      "No cell runs. Files of %%writefile are written, commands (!) are not run.\n"
      "Exit codes: 0 the file is written; 1 a cell does not compile; 2 bad usage, or a file that can't be read or "
      "written;\n3 the compiler can't work; 130 interrupted.");
  return [options] { return Build(*options).run(); };
}

const RegisterCommand kBuild({"build", "Compile session scripts ahead, into a file that runs without the compiler",
                              set_up_build});

}  // namespace
}  // namespace lockstep::shell
