// lockstep-bench-scale --ranks N --hosts H: what a session costs its shell with many ranks, which are stubs without
// LibTorch behind H relays on this machine. Processor time is that of this process, which is the shell; the time until
// the end is that of everybody on this machine's cores.
#include <sys/resource.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/session/measurement.h"
#include "benchmarks/session/processes.h"
#include "protocol/error.h"
#include "shell/cells/cell_runner.h"
#include "shell/jobs/remote_ranks.h"
#include "shell/processes/launcher.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/worker_group.h"

namespace lockstep::benchmark {
namespace {

using namespace shell;

/// An object that is the text of the cell, and as many bytes more as its options say.
class TextObjects : public ObjectSource {
 public:
  const protocol::CompilerReady& wait_ready() override { return ready_; }
  FromCompiler ask(const protocol::CompilerRequest& request) override {
    const auto* compile = std::get_if<protocol::Compile>(&request);
    if (!compile) throw ChannelError("only cells are compiled here");
    protocol::Compiled compiled;
    compiled.cell = compile->cell;
    compiled.status = CompileStatus::ok;
    protocol::CompiledObject object;
    object.ranks = compile->ranks;
    object.name = "cell.so";
    object.source = compile->text;
    compiled.objects.push_back(object);
    std::string bytes = compile->text + "\n" + std::to_string(compile->cell);
    bytes.resize(std::max(bytes.size(), object_bytes), 'x');
    return {std::move(compiled), {std::move(bytes)}};
  }
  void settle(const protocol::Settle&) override {}
  int64_t definitions() const override { return 0; }
  void cancel() override {}

  size_t object_bytes = 20'000;

 private:
  protocol::CompilerReady ready_;
};

double processor_ms() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

class Scale {
 public:
  Scale(int ranks, int hosts, int rounds) : ranks_(ranks), hosts_(hosts), rounds_(rounds) {
    options_.abort_hangs = true;
    options_.backend = "gloo";
    measure("start", 1, [&] { start(); });
  }
  ~Scale() { workers_->shutdown(); }

  void run_all() {
    measure_cells("value", "value", 20'000);
    measure_cells("call", "call", 20'000);  // the shell compares the calls of all hosts after it
    measure_cells("object_100_kb", "nothing", 100'000);
    measure_cells("object_2_mb", "nothing", 2'000'000);
    measure("status", rounds_, [&] {
      if (runner_->query(workers_->live(), protocol::question::Status(), std::chrono::seconds(60)).size() !=
          static_cast<size_t>(ranks_))
        throw std::runtime_error("not all ranks have answered");
    });
    const double before = memory_of(::getpid()).resident_mb;
    measure_cells("output_1_mb", "output 1000000", 20'000, 1);
    report(name("memory.after_output"), ranks_, "MB", {memory_of(::getpid()).resident_mb});
    report(name("memory.before_output"), ranks_, "MB", {before});
    const size_t found = findings_;
    measure_cells("hang", "hang", 20'000, 1, CellStatus::aborted);
    if (findings_ != found + 1) throw std::runtime_error("the hang was not reported once");
  }

 private:
  std::string name(const std::string& what) const { return "scale." + std::to_string(hosts_) + "_hosts." + what; }

  void start() {
    RankPlaces places;
    std::vector<RemoteRanks*> relays;
    for (int host = 0; host < hosts_; ++host) {
      auto one = std::make_unique<RemoteRanks>(loop_, Host{.name = "host-" + std::to_string(host), .command = {}},
                                               find_program("lockstep"), directory_.hub_path());
      one->give(ranks_ / hosts_ + (host < ranks_ % hosts_ ? 1 : 0));
      relays.push_back(one.get());
      places.push_back(std::move(one));
    }
    const auto are_heard = [&] {
      return std::ranges::all_of(relays,
                                 [](const auto* each) { return each->machine().state() == RemoteHost::State::heard; });
    };
    if (!loop_.run_until(are_heard, EventLoop::Clock::now() + std::chrono::seconds(120)))
      throw StartError("not all relays have answered");
    workers_ = std::make_unique<WorkerGroup>(
        loop_, std::move(places), options_, directory_,
        RankGroup::Listener{.message =
                                [this](FromWorker& from) {
                                  if (runner_) runner_->message(from);
                                },
                            .last_output = [](int, Stream, const std::string&) {},
                            .warning = [](const std::string& text) { std::cerr << text << '\n'; },
                            .died =
                                [this](int rank, const protocol::CellError& error) {
                                  std::cerr << "rank " << rank << " died: " << error.message << '\n';
                                  if (runner_) runner_->died(rank, error);
                                },
                            .left = [](int) {},
                            .store_ended = [](const std::string& how) { std::cerr << "the store " << how << '\n'; }});
    workers_->wait_connected();
    workers_->make_ready("", {});
    runner_ =
        std::make_unique<CellRunner>(loop_, objects_, *workers_, directory_, options_, [this](const Event& event) {
          if (std::holds_alternative<FindingEvent>(event)) ++findings_;
          if (const auto* error = std::get_if<ErrorEvent>(&event)) std::cerr << error->message << '\n';
        });
  }

  void measure(const std::string& what, int times, const std::function<void()>& run) {
    std::vector<double> processor, elapsed;
    for (int i = 0; i < times; ++i) {
      const double before = processor_ms();
      const auto begin = std::chrono::steady_clock::now();
      run();
      elapsed.push_back(milliseconds_since(begin));
      processor.push_back(processor_ms() - before);
    }
    report(name(what + ".processor"), ranks_, "ms", processor);
    report(name(what + ".elapsed"), ranks_, "ms", elapsed);
  }

  void measure_cells(const std::string& what, const std::string& text, size_t object_bytes, int times = 0,
                     CellStatus expected = CellStatus::ok) {
    objects_.object_bytes = object_bytes;
    measure(what, times > 0 ? times : rounds_, [&] {
      CellRequest request;
      request.text = text;
      request.ranks = workers_->live();
      request.number = ++number_;
      const CodeResult result = runner_->run(request);
      if (result.status != expected)
        throw std::runtime_error(what + " ended as " + std::string(to_string(result.status)));
    });
  }

  const int ranks_, hosts_, rounds_;
  EventLoop loop_;
  SessionDirectory directory_;
  SessionOptions options_;
  TextObjects objects_;
  std::unique_ptr<WorkerGroup> workers_;
  std::unique_ptr<CellRunner> runner_;
  int64_t number_ = 0;
  size_t findings_ = 0;
};

/// Relays find the program here, and the stub beside it in place of the worker.
void make_programs(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "run");
  std::filesystem::create_symlink(find_program("lockstep"), folder / "lockstep");
  std::filesystem::create_symlink(find_program("lockstep-stub-worker"), folder / "lockstep-worker");
  ::setenv("LOCKSTEP_BIN", folder.c_str(), 1);
  ::setenv("XDG_RUNTIME_DIR", (folder / "run").c_str(), 1);
}

int run(int argument_count, char** arguments) {
  CLI::App app("What a session of many ranks costs its shell");
  int ranks = 64, hosts = 4, rounds = 5;
  app.add_option("--ranks", ranks)->check(CLI::Range(1, 100'000));
  app.add_option("--hosts", hosts, "relays")->check(CLI::Range(1, 10'000));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1'000));
  CLI11_PARSE(app, argument_count, arguments);
  ::signal(SIGPIPE, SIG_IGN);
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-scale-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  int code = 0;
  try {
    make_programs(folder);
    Scale(ranks, std::min(hosts, ranks), rounds).run_all();
  } catch (const std::exception& error) {
    std::cerr << "lockstep-bench-scale: " << error.what() << '\n';
    code = 1;
  }
  std::error_code ignored;  // relays that end remove what is theirs at the same time
  std::filesystem::remove_all(folder, ignored);
  return code;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argument_count, char** arguments) { return lockstep::benchmark::run(argument_count, arguments); }
