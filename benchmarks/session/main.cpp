// lockstep-bench-session MEASUREMENT --ranks N --cells K: what a cell costs between its text and its end, on a session of
// this process. Text is never seen before (unless the measurement is about that), and submitted when the cell before has
// ended. `trivial` also measures what a journal in the folder of temporary files adds.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/session/measurement.h"
#include "benchmarks/session/processes.h"
#include "benchmarks/session/recorder.h"
#include "protocol/runtime_folder.h"
#include "shell/journal/journal.h"

namespace lockstep::benchmark {
namespace {

struct Bench {
  explicit Bench(int ranks, int cells, bool debug)
      : ranks(ranks), cells(cells), session(options(ranks, debug), recorder) {
    session.start();
    run("0;");  // the first cell of a session loads what all later ones share
  }

  static shell::SessionOptions options(int ranks, bool debug) {
    shell::SessionOptions options;
    options.num_processes = ranks;
    options.debug_cells = debug;
    return options;
  }

  CellTime run(const std::string& text) { return run_cell(session, recorder, text); }

  int ranks, cells;
  Recorder recorder;
  shell::Session session;
};

/// What the journal of a session adds to a cell in which each rank prints a line and shows a value of its own.
void measure_journal(Bench& bench) {
  shell::Journal journal(
      "1-a", {}, [] { return nlohmann::json::object(); },
      [](const std::string& problem) { throw std::runtime_error(problem); });
  const std::string text =
      "auto loss = train(net, optimizer, loader);\nstd::cout << \"epoch \" << epoch << '\\n';\nloss";
  const auto all = RankSet::all(bench.ranks);
  std::vector<double> times;
  for (int i = 1; i <= 20 * bench.cells; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    journal.begin_cell({.number = i, .title = "", .text = text, .ranks = all});
    shell::CellEvent end{.cell = i, .title = "", .ranks = all};
    for (const int rank : all) {
      journal.take(
          shell::OutputEvent{i, {rank}, Stream::standard_output, "epoch 7 of rank " + std::to_string(rank) + "\n"});
      journal.take(shell::ValueEvent{.cell = i, .ranks = {rank}, .text = "0.123456", .data = 0.123456, .label = ""});
      end.rank_status[rank] = CellStatus::ok;
      end.run_ms[rank] = 12.5;
    }
    journal.take(end);
    journal.end_cell(i, all, CellStatus::ok, 0);
    times.push_back(milliseconds_since(begin));
  }
  report("journal.cell", bench.ranks, "ms", times);
}

/// A name that is defined again and again, and an expression of it.
void measure_trivial(Bench& bench) {
  measure_journal(bench);
  std::vector<double> declaration, value;
  for (int i = 0; i < bench.cells; ++i) {
    declaration.push_back(bench.run("int k = " + std::to_string(i) + ";").total_ms);
    value.push_back(bench.run("k + " + std::to_string(i)).total_ms);
    if (bench.recorder.last_value != std::to_string(2 * i)) throw std::runtime_error("k + i is not what it should be");
  }
  report("cell.declaration", bench.ranks, "ms", declaration);
  report("cell.value", bench.ranks, "ms", value);
}

/// A magic that the shell answers, one that asks the ranks, and text that was there before.
void measure_magic(Bench& bench) {
  bench.run("int k = 1;");
  bench.run("k + 1");
  std::vector<double> local, asked, repeated;
  for (int i = 0; i < bench.cells; ++i) {
    local.push_back(bench.run("%rank all").total_ms);
    asked.push_back(bench.run("%sync").total_ms);
    repeated.push_back(bench.run("k + 1").total_ms);
  }
  report("cell.magic", bench.ranks, "ms", local);
  report("cell.magic_sync", bench.ranks, "ms", asked);
  report("cell.repeated", bench.ranks, "ms", repeated);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The cells of benchmarks/cells, with a number for each `@` that makes the text a new one.
void measure_torch(Bench& bench) {
  const std::filesystem::path folder = LOCKSTEP_BENCHMARK_CELLS;
  const auto numbered = [&](const std::string& name, int number) {
    std::string text = read_file(folder / (name + ".cpp"));
    for (size_t at; (at = text.find('@')) != std::string::npos;) text.replace(at, 1, std::to_string(number));
    return text;
  };
  bench.run(numbered("before", 0));
  const std::vector<std::string> names{"module", "training_loop", "data_loader", "sequential"};
  std::map<std::string, std::vector<double>> compile, total, size;
  for (int i = 1; i <= bench.cells; ++i)
    for (const auto& name : names) {
      const CellTime time = bench.run(numbered(name, i));
      compile[name].push_back(time.compile_ms);
      total[name].push_back(time.total_ms);
      const auto rank0 = std::filesystem::path(protocol::runtime_directory()) / bench.recorder.session_id / "rank-0";
      const auto object = rank0 / ("cell_" + std::to_string(bench.recorder.last_cell.cell) + ".so");
      size[name].push_back(static_cast<double>(std::filesystem::file_size(object)) / 1024);
    }
  const std::string kind = bench.session.options().debug_cells ? "torch_debug." : "torch.";
  for (const auto& name : names) {
    report(kind + name + ".compile", bench.ranks, "ms", compile[name]);
    report(kind + name + ".total", bench.ranks, "ms", total[name]);
    report(kind + name + ".object", bench.ranks, "KB", size[name]);
  }
}

/// Whether the thousandth cell costs what the first did, and what each leaves behind.
void measure_many(Bench& bench) {
  const auto run_some = [&](int from, int to) {
    std::vector<double> times;
    for (int i = from; i < to; ++i) {
      times.push_back(bench.run("int v" + std::to_string(i % 50) + " = " + std::to_string(i) + ";").total_ms);
      times.push_back(bench.run("v" + std::to_string(i % 50) + " + " + std::to_string(i)).total_ms);
    }
    return times;
  };
  const int half = bench.cells / 2, tenth = bench.cells / 20;
  const auto first = run_some(0, tenth);
  const auto before = memory_by_role();
  run_some(tenth, half - tenth);
  const auto after = memory_by_role();
  const auto last = run_some(half - tenth, half);
  report("many.first_tenth", bench.ranks, "ms", first);
  report("many.last_tenth", bench.ranks, "ms", last);
  report("many.growth", bench.ranks, "x", {median(last) / median(first)});
  for (const auto& [role, memory] : after)
    report("many.memory." + role, bench.ranks, "KB/cell",
           {(memory.own_mb - before.at(role).own_mb) * 1024 / (2 * (half - 2 * tenth))});
}

/// 100 MB from one rank, in lines as programs write them, and in one piece.
void measure_output(Bench& bench) {
  const auto before = memory_by_role();
  const std::vector<std::pair<std::string, std::string>> cells{
      {"lines", "%%rank [0]\nfor (int i = 0; i < 1000000; ++i) printf(\"%099d\\n\", i);"},
      {"piece", "%%rank [0]\n{ std::string block(100000000, 'x'); fwrite(block.data(), 1, block.size(), stdout); }"}};
  for (const auto& [name, text] : cells) {
    const int64_t printed_before = bench.recorder.output_bytes;
    const CellTime time = bench.run(text);
    if (bench.recorder.output_bytes - printed_before != 100000000)
      throw std::runtime_error("of 100 MB there came " + std::to_string(bench.recorder.output_bytes - printed_before) +
                               " bytes");
    report("output." + name, bench.ranks, "ms", {time.total_ms});
  }
  for (const auto& [role, memory] : memory_by_role())
    report("output.memory." + role, bench.ranks, "MB", {memory.resident_mb - before.at(role).resident_mb});
}

/// What it costs that loops can be interrupted: an empty loop with the poll, and in a `noexcept` function, which has
/// none.
void measure_poll(Bench& bench) {
  const std::string loop = " { for (long i = 0; i < n; ++i) asm volatile(\"\" : : \"r\"(i)); }\n";
  const std::string time =
      "double ns_of(void (*spin)(long)) {\n"
      "  const long n = 100000000;\n"
      "  const auto begin = std::chrono::steady_clock::now();\n"
      "  spin(n);\n"
      "  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / n;\n"
      "}\n";
  for (const std::string level : {"O0", "O2"}) {
    const std::string magic = level == "O0" ? "" : "%%" + level + "\n";
    bench.run("%%rank [0]\n" + magic + "void polled(long n)" + loop + "void bare(long n) noexcept" + loop + time);
    for (const std::string function : {"polled", "bare"}) {
      std::vector<double> values;
      for (int i = 0; i < 3; ++i) {
        bench.run("%%rank [0]\nns_of(" + function + ")");
        values.push_back(std::stod(bench.recorder.last_value));
      }
      report("loop." + level + "." + function, bench.ranks, "ns", values);
    }
  }
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  using namespace lockstep::benchmark;
  const std::map<std::string, std::function<void(Bench&)>> measurements{
      {"trivial", measure_trivial}, {"magic", measure_magic},   {"torch", measure_torch},
      {"many", measure_many},       {"output", measure_output}, {"poll", measure_poll}};
  std::vector<std::string> names;
  for (const auto& [name, function] : measurements) names.push_back(name);

  CLI::App app{"Measures what cells cost, from their text to their end"};
  std::string measurement;
  int ranks = 2, cells = 50;
  bool debug = false;
  app.add_option("measurement", measurement)->required()->check(CLI::IsMember(names));
  app.add_option("--ranks", ranks, "ranks of the session")->check(CLI::PositiveNumber);
  app.add_option("--cells", cells, "cells of each kind")->check(CLI::PositiveNumber);
  app.add_flag("--debug-cells", debug, "full debug information");
  CLI11_PARSE(app, argc, argv);
  std::string state = (std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
  if (!::mkdtemp(state.data())) return 1;
  ::setenv("XDG_STATE_HOME", state.c_str(), 1);  // journals of a benchmark are nobody's
  int code = 0;
  try {
    Bench bench(ranks, cells, debug);
    measurements.at(measurement)(bench);
  } catch (const std::exception& problem) {
    std::cerr << "lockstep-bench-session: " << problem.what() << '\n';
    code = 1;
  }
  std::error_code ignored;
  std::filesystem::remove_all(state, ignored);
  return code;
}
