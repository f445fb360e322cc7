// memory and timeline: what is counted by whom, and that a trace is one that a viewer takes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "collectives/session_group.h"
#include "inspectors/exchange/clock_offset.h"
#include "inspectors/memory/memory.h"
#include "inspectors/timing/timeline.h"
#include "inspectors/verify/watch.h"
#include "lockstep/ddp.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

int64_t counted_bytes(const RankMemory& memory, const std::string& name, const std::string& kind) {
  for (const TensorMemory& each : memory.tensors)
    if (each.name == name && each.kind == kind) return each.bytes;
  return -1;
}

TEST(Memory, TensorsAreCountedByNameAndKindAndEachStorageOnce) {
  spawn_ranks(2, [](int rank, int) {
    torch::nn::Linear net(8, 4);
    net(torch::ones({1, 8})).sum().backward();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
    optimizer.step();
    const torch::Tensor large = torch::zeros({100, 10}), view = large[3];
    const std::vector<torch::Tensor> list = {torch::zeros({2}), view};
    const int number = 3;
    const MemoryReport report =
        memory({named_memory("net", net), named_memory("optimizer", optimizer), named_memory("large", large),
                named_memory("list", list), named_memory("number", number)});
    ASSERT_EQ(report.ranks.size(), 2U);
    const RankMemory& mine = report.ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(counted_bytes(mine, "net", "parameter"), 36 * 4);
    EXPECT_EQ(counted_bytes(mine, "net", "gradient"), 36 * 4);
    EXPECT_EQ(counted_bytes(mine, "optimizer", "state"), 36 * 4);
    EXPECT_EQ(counted_bytes(mine, "large", "tensor"), 4000);
    EXPECT_EQ(counted_bytes(mine, "list", "tensor"), 8);  // the other is large's
    EXPECT_EQ(counted_bytes(mine, "number", "value"), -1);
    EXPECT_GT(mine.resident, 0);
    EXPECT_GE(mine.peak_resident, mine.resident / 2);
    EXPECT_GT(mine.heap_used, 0);
    EXPECT_FALSE(mine.watched.has_value());
    std::ostringstream text;
    text << report;
    EXPECT_THAT(text.str(), HasSubstr("net: gradients"));
  });
}

TEST(Memory, AWatchSeesPeaksAndWhatIsKept) {
  spawn_ranks(1, [](int, int) {
    std::vector<torch::Tensor> kept;
    const MemoryWatch watching = watch_memory();
    dist::name_cell(1007, 7);  // a session runs cells in pieces, which have numbers of their own
    dist::set_thread_context(1007);
    {
      const torch::Tensor gone = torch::empty({1 << 20});
    }
    kept.push_back(torch::empty({1 << 18}));
    dist::set_thread_context(8);
    kept.push_back(torch::empty({1 << 10}));
    dist::set_thread_context(0);
    const auto counted = watched_memory();
    ASSERT_TRUE(counted.has_value());
    ASSERT_EQ(counted->cells.size(), 2U);
    EXPECT_EQ(counted->cells[0].cell, 7);
    EXPECT_EQ(counted->cells[0].peak, 4 << 20);
    EXPECT_EQ(counted->cells[0].kept, 1 << 20);
    EXPECT_EQ(counted->cells[0].allocations, 2);
    EXPECT_EQ(counted->cells[1].kept, 4 << 10);
    EXPECT_EQ(counted->cells[1].peak, (1 << 20) + (4 << 10));
    EXPECT_THROW(static_cast<void>(watch_memory()), lockstep::Error);
  });
}

TEST(Memory, ALeakIsGrowthPerStep) {
  spawn_ranks(1, [](int, int) {
    std::vector<torch::Tensor> losses;
    const MemoryWatch watching = watch_memory();
    for (int i = 0; i < 10; ++i) {
      const torch::Tensor work = torch::empty({1000});
      losses.push_back(torch::empty({250}));
      count_step();
    }
    torch::empty({1});
    const auto counted = watching.counted();
    EXPECT_EQ(counted.steps, 10);
    EXPECT_EQ(counted.growth_per_step, 1000);
  });
  EXPECT_FALSE(watched_memory().has_value());
}

TEST(ClockOffset, TheTrueOffsetLiesWithinTheError) {
  const int64_t truth = 123'456'789;
  BarrierTimes reference, other;
  for (int i = 0; i < 20; ++i) {
    // Both come, and leave when both have: each some time later.
    const int64_t at = 1'000'000 * i, late = 1000 * ((i * 7) % 5), early = 1000 * ((i * 3) % 4);
    const int64_t met = at + std::max(late, early);
    reference.entered_ns.push_back(at + early);
    reference.left_ns.push_back(met + 2000);
    other.entered_ns.push_back(at + late + truth);
    other.left_ns.push_back(met + 3000 + truth);
  }
  const ClockOffset offset = clock_offset(reference, other);
  EXPECT_LE(std::abs(offset.ns - truth), offset.error_ns);
  EXPECT_LT(offset.error_ns, 5000);
}

/// The file, if it is one that a viewer takes: every event has what its kind needs, and begins and ends are in pairs.
nlohmann::json valid_trace(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::set<std::string> open;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    EXPECT_TRUE(event.at("pid").is_number_integer() && event.at("name").is_string()) << event;
    if (phase == "M") continue;
    EXPECT_TRUE(event.at("ts").is_number()) << event;
    EXPECT_FALSE(event.at("cat").get<std::string>().empty());
    if (phase == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0) << event;
    } else if (phase == "b") {
      EXPECT_TRUE(open.insert(event.at("id")).second) << event;
    } else {
      EXPECT_EQ(phase, "e") << event;
      EXPECT_EQ(open.erase(event.at("id").get<std::string>()), 1U) << event;
    }
  }
  EXPECT_TRUE(open.empty());
  return trace;
}

TEST(Timeline, AllRanksAreInOneTraceThatAViewerTakes) {
  const std::string path = std::filesystem::temp_directory_path() / ("timeline-" + std::to_string(getpid()) + ".json");
  spawn_ranks(2, [&](int rank, int) {
    torch::nn::Linear module(8, 4);
    {
      const torch::NoGradGuard no_grad;
      for (auto& each : module->parameters()) each.fill_(0.1);
    }
    auto net = ddp::DistributedDataParallel(module);
    TimelineReport report;
    {
      const auto recording = record_operators();
      dist::name_cell(1009, 9);
      if (rank == 0) dist::set_thread_context(1009);  // ranks are threads here, and the spans of cells the process's
      for (int i = 0; i < 2; ++i) net(torch::ones({2, 8})).sum().backward();
      if (rank == 0) dist::set_thread_context(0);
      EXPECT_THROW(static_cast<void>(record_operators()), lockstep::Error);
    }
    report = timeline(path);
    EXPECT_GT(report.operators, 10);
    EXPECT_EQ(report.buckets, 4);  // two steps of one bucket on two ranks
    EXPECT_EQ(report.clock_error, 0);
    EXPECT_GT(report.cells, 0);
    if (rank != 0) return;
    const nlohmann::json trace = valid_trace(path);
    std::set<int> ranks;
    std::set<std::string> names, categories;
    for (const auto& event : trace.at("traceEvents")) {
      ranks.insert(event.at("pid").get<int>());
      names.insert(event.at("name").get<std::string>());
      if (event.contains("cat")) categories.insert(event.at("cat").get<std::string>());
    }
    EXPECT_EQ(ranks, (std::set<int>{0, 1}));
    EXPECT_TRUE(names.contains("cell 9") && !names.contains("cell 1009")) << ::testing::PrintToString(names);
    EXPECT_TRUE(names.contains("aten::addmm")) << ::testing::PrintToString(names);
    for (const char* each : {"operator", "backward", "bucket", "collective"})
      EXPECT_TRUE(categories.contains(each)) << each;
  });
  std::filesystem::remove(path);
}

TEST(Timeline, AFileThatCantBeWrittenIsAnErrorOnEveryRank) {
  spawn_ranks(2, [](int, int) { EXPECT_THROW(timeline("/nowhere/at/all.json"), dist::Error); });
}

TEST(Timeline, CellsAreSpans) {
  dist::set_thread_context(41);
  dist::set_thread_context(41, 1);
  dist::set_thread_context(0);
  const auto spans = dist::cell_spans();
  ASSERT_FALSE(spans.empty());
  EXPECT_EQ(spans.back().cell, 41);
  EXPECT_GE(spans.back().end_ns, spans.back().begin_ns);
  dist::set_thread_context(42);
  EXPECT_EQ(dist::cell_spans().back().end_ns, 0);
  dist::set_thread_context(0);
}

}  // namespace
}  // namespace lockstep::inspect
