// What the watch over waits costs: an entry of the collective log with nobody watching and with a watch, one look of the watch
// after 100 collectives, and, once ranks are stuck, reading all logs and finding out who waits for whom.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "collectives/log/collective_log.h"
#include "inspectors/hang/analysis.h"

namespace lockstep {
namespace {

void one_collective(dist::CollectiveLog& log, uint32_t group, int64_t seq) {
  const int64_t shape[] = {2};
  log.finish(
      log.begin(group, seq,
                {.op = dist::CollectiveOp::all_reduce, .tensor_count = 1, .bytes = 8, .shape = shape, .dimensions = 1}),
      dist::log_layout::EntryState::done);
}

void entry(benchmark::State& state, bool watched) {
  dist::CollectiveLog log("", 0, 2);
  const uint32_t group = log.add_group("default", {0, 1}, 0, 0);
  if (watched) log.watch_long_waits(100'000'000, [] {});
  int64_t seq = 0;
  for (auto _ : state) one_collective(log, group, ++seq);
}
BENCHMARK_CAPTURE(entry, unwatched, false);
BENCHMARK_CAPTURE(entry, watched, true);

void look(benchmark::State& state) {
  dist::CollectiveLog log("", 0, 2);
  const uint32_t group = log.add_group("default", {0, 1}, 0, 0);
  log.watch_long_waits(100'000'000, [] {});
  int64_t seq = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (int i = 0; i < 100; ++i) one_collective(log, group, ++seq);
    state.ResumeTiming();
    benchmark::DoNotOptimize(log.long_waits()->look(dist::monotonic_ns()));
  }
}
BENCHMARK(look);

/// All ranks but the last sit in a collective; each has made 4,096.
void who_waits_for_whom(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-hang-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  std::vector<std::unique_ptr<dist::CollectiveLog>> logs;
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  for (int rank = 0; rank < ranks; ++rank) {
    logs.push_back(std::make_unique<dist::CollectiveLog>(folder + "/" + std::to_string(rank), rank, ranks));
    const uint32_t group = logs.back()->add_group("default", all, rank, 0);
    int64_t seq = 0;
    while (seq < dist::log_layout::kEntryCapacity) one_collective(*logs.back(), group, ++seq);
    if (rank != ranks - 1) logs.back()->begin(group, ++seq, {.op = dist::CollectiveOp::barrier});
    logs.back()->mapping().group(group).last_entered = seq;
  }
  size_t found = 0;
  for (auto _ : state) {
    inspect::HangPicture picture;
    for (int rank = 0; rank < ranks; ++rank) {
      inspect::RankPicture each;
      each.rank = rank;
      if (rank == ranks - 1) each.place = inspect::RankPicture::Place::dead;
      inspect::read_log(each, folder + "/" + std::to_string(rank));
      picture.ranks.push_back(std::move(each));
    }
    found = inspect::analyse_hang(picture).proven.size();
  }
  if (found != 1) state.SkipWithError("the hang was not found");
  std::filesystem::remove_all(folder);
}
BENCHMARK(who_waits_for_whom)->Arg(2)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
