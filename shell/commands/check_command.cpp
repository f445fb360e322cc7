#include "shell/commands/check_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/library_includes.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/scripts/magic_parser.h"
#include "shell/scripts/script.h"
#include "shell/session/outcome.h"
#include "shell/terminal/renderer.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

/// A signal asks the command for this: the compiler ends, the session's folder goes, and then the command.
class Stop {
 public:
  int fd() const { return wake_.get(); }
  int signal() const { return signal_; }
  void take() { take_event(wake_.get()); }
  void ask(int signal) noexcept {
    signal_ = signal;
    set_event(wake_.get());
  }

 private:
  Descriptor wake_ = make_event();
  std::atomic<int> signal_{0};
};
Stop stop;

/// Is one script on its way through a compiler of its own.
class ScriptCheck {
 public:
  ScriptCheck(std::string name, const CheckOptions& options, Renderer& renderer)
      : name_(std::move(name)),
        options_(options),
        renderer_(renderer),
        ranks_(RankSet::all(options.ranks)),
        directory_(working_directory()),
        compiler_(loop_, CompilerOptions{folder_.path(), options.include_dirs, options.compile_memory_mb},
                  [&](const protocol::CompilerProgress& progress) {
                    if (!progress.message.empty()) renderer_.take(MessageEvent{0, progress.message, nullptr});
                  }) {
    loop_.watch(stop.fd(), [this] {
      stop.take();
      compiler_.cancel();
    });
  }
  ~ScriptCheck() { loop_.forget(stop.fd()); }
  ScriptCheck(const ScriptCheck&) = delete;
  ScriptCheck& operator=(const ScriptCheck&) = delete;

  /// Returns how many cells do not compile.
  int run(const std::vector<ScriptCell>& cells) {
    int failed = 0;
    for (const ScriptCell& cell : cells) {
      if (cell.markdown) continue;
      const bool may_fail = std::any_of(cell.tags.begin(), cell.tags.end(),
                                        [](const Tag& tag) { return tag.name == "raises-exception"; });
      where_ = cell.line > 0 ? fmt::format("{}:{}", name_, cell.line) : name_;
      if (stop.signal() != 0) break;
      ++number_;
      std::vector<Event> problems;
      try {
        check(cell, problems);
      } catch (const UsageError& error) {
        problems.push_back(ErrorEvent{.cell = number_, .ranks = {}, .type = "usage_error", .message = error.what()});
      }
      if (problems.empty() || may_fail || stop.signal() != 0) continue;
      ++failed;
      renderer_.take(MessageEvent{
          0, fmt::format("{}: cell {}{}", where_, number_, cell.title.empty() ? "" : " (" + cell.title + ")"),
          nullptr});
      for (const Event& problem : problems) renderer_.take(problem);
    }
    return failed;
  }

 private:
  void check(const ScriptCell& cell, std::vector<Event>& problems) {
    const ParsedCell parsed = parse_cell(cell.text, MagicRegistry::instance());
    RankSet ranks = target_;
    if (ranks.empty()) ranks = ranks_;
    int optimize = 0;
    for (const MagicUse& magic : parsed.cell_magics) {
      if (magic.name == "rank") ranks = parse_rank_set(magic.arguments, static_cast<int>(ranks_.size()));
      if (magic.name == "distributed") ranks = ranks_;
      if (magic.name.size() == 2 && magic.name[0] == 'O') optimize = magic.name[1] - '0';
    }
    for (const CellPart& part : parsed.parts) {
      if (part.is_code)
        compile(part.code, ranks, optimize, problems);
      else
        follow(part.magic, ranks, problems);
      if (!problems.empty()) return;
    }
  }

  /// Follows line magics that change what later cells are compiled for, and those that have C++ behind them.
  void follow(const MagicUse& magic, const RankSet& ranks, std::vector<Event>& problems) {
    const int size = static_cast<int>(ranks_.size());
    if (magic.name == "rank") {
      const auto [spec, code] = split_spec(magic.arguments);
      const RankSet set = parse_rank_set(spec, size);
      if (code.empty())
        target_ = set;
      else
        compile(std::string(static_cast<size_t>(magic.line - 1), '\n') + code, set, 0, problems);
    } else if (magic.name == "time") {
      compile(std::string(static_cast<size_t>(magic.line - 1), '\n') + magic.arguments, ranks, 0, problems);
    } else if (magic.name == "dist_init") {
      const auto count = given(magic).count("-n");
      if (!count) return;
      const RankSet before = std::exchange(ranks_, RankSet::all(static_cast<int>(std::min<int64_t>(*count, 4096))));
      if (last_definition() == 0) return;
      for (const int rank : ranks_ - before)  // where the session runs already, they get what the others have
        compiler_.ask(protocol::Forget{.names = {}, .undo = 0, .rank = rank, .like = before});
    } else if (magic.name == "cd") {
      directory_ = (directory_ / magic.arguments).lexically_normal();
    } else if (magic.name == "lib") {
      const std::vector<std::string> words = given(magic).words();
      if (words.size() > 1)
        compile(
            std::string(static_cast<size_t>(magic.line - 1), '\n') + library_includes({words.begin() + 1, words.end()}),
            ranks, 0, problems);
    } else if (magic.name == "reset") {
      const MagicArguments arguments = given(magic);
      if (arguments.has("--all") || !arguments.words().empty())
        compiler_.ask(protocol::Forget{.names = arguments.words(), .undo = 0});
    } else if (magic.name == "undo") {
      const std::optional<std::string> cell = given(magic).word();
      if (const int64_t undone = cell ? parse_count(*cell, "a cell") : last_definition())
        compiler_.ask(protocol::Forget{.names = {}, .undo = undone});
    }
  }

  static MagicArguments given(const MagicUse& magic) {
    return MagicRegistry::instance().find(magic.name, false).read(MagicForm::line, magic.arguments);
  }

  /// The newest cell that has defined a name; 0: none has.
  int64_t last_definition() {
    const FromCompiler answer = compiler_.ask(protocol::ListNames{});
    int64_t newest = 0;
    if (const auto* list = std::get_if<protocol::Names>(&answer.response))
      for (const protocol::Name& name : list->names) newest = std::max(newest, name.cell);
    return newest;
  }

  void compile(const std::string& code, const RankSet& ranks, int optimize, std::vector<Event>& problems) {
    protocol::Compile request;
    request.cell = ++compiled_;
    request.text = code;
    request.ranks = ranks;
    request.optimize = optimize;
    request.time_limit_s = options_.compile_timeout_s;
    request.directory = directory_.string();
    const FromCompiler answer = compiler_.ask(request);
    const auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
    if (!compiled || compiled->status != CompileStatus::ok) {
      problems.push_back(ErrorEvent{.cell = number_,
                                    .ranks = ranks,
                                    .type = "compile_error",
                                    .message = compiled ? compiled->rendered : "the compiler gave no answer\n"});
      return;
    }
    // It counts as if it had run to its end everywhere: later cells see its names.
    protocol::Settle settle{.cell = request.cell, .loaded = true, .steps_done = {}};
    for (const protocol::CompiledObject& object : compiled->objects)
      for (const int rank : object.ranks) settle.steps_done[rank] = static_cast<int64_t>(object.steps.size());
    compiler_.settle(settle);
  }

  std::string name_, where_;
  const CheckOptions& options_;
  Renderer& renderer_;
  RankSet ranks_, target_;
  fs::path directory_;
  int64_t number_ = 0, compiled_ = 0;
  SessionDirectory folder_;
  EventLoop loop_;
  CompilerService compiler_;
};

std::function<int()> set_up_check(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  app.add_option("file", options->files, "Session scripts (.cpp in percent format, .ipynb); - is the standard input")
      ->required();
  app.add_option("-n,--num-processes", options->ranks, "As if the session had that many ranks")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--compile-timeout", options->compile_timeout_s, "Seconds that compiling a cell may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--compile-memory", options->compile_memory_mb,
                 "Megabytes of memory that compiling a cell may take; 0: no limit (3072)")
      ->type_name("MB")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-I,--include-dir", options->include_dirs, "Folder of headers that cells include; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.footer(
      "Exit codes: 0 all cells compile; 1 some do not; 2 bad usage or unreadable file; 3 the compiler can't work; 130\n"
      "interrupted.");
  return [options] { return check_command(*options); };
}

const RegisterCommand kCheck({"check", "Compile every cell of session scripts and run none", set_up_check});

}  // namespace

int check_command(const CheckOptions& options) {
  std::vector<std::vector<ScriptCell>> scripts;
  for (const std::string& file : options.files) scripts.push_back(read_cpp_script(file));
  const Screen screen = detect_screen(STDOUT_FILENO);
  TextOutput output(STDOUT_FILENO);
  Renderer renderer(screen, [&output](std::string_view bytes) { output.write(bytes); });
  const SignalScope signals([](int signal) { stop.ask(signal); });
  int failed = 0;
  size_t cells = 0;
  for (size_t i = 0; i < scripts.size(); ++i) {
    failed += ScriptCheck(options.files[i], options, renderer).run(scripts[i]);
    cells += static_cast<size_t>(
        std::count_if(scripts[i].begin(), scripts[i].end(), [](const ScriptCell& cell) { return !cell.markdown; }));
  }
  if (stop.signal() != 0) return kExitInterrupted;
  const auto plural = [](auto n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  const std::string verdict = failed == 0 ? paint(screen, Style::good, signs(screen).good) + " " +
                                                plural(cells, "cell") + " compile" + (cells == 1 ? "s" : "")
                                          : paint(screen, Style::fault, signs(screen).fault) +
                                                fmt::format(" {} of {} do{} not compile", failed, plural(cells, "cell"),
                                                            failed == 1 ? "es" : "");
  output.write(verdict + "\n");
  return failed == 0 && !output.lost() ? kExitOk : kExitFailed;
}

}  // namespace lockstep::shell
