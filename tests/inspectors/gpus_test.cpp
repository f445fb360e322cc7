// What NVML says of the GPUs, with a library in its place that says what a test wants.
#include "inspectors/gpus/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::gpus {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kLong = 300s;  // ends what hangs; judges nothing

json one_gpu() {
  return {{"name", "NVIDIA H100 80GB HBM3"},
          {"uuid", "GPU-1"},
          {"bus_id", "00000000:3B:00.0"},
          {"capability", {9, 0}},
          {"total", 85899345920},
          {"used", 12884901888},
          {"load", {97, 41}},
          {"temperature", 64},
          {"ecc", 1},
          {"persistence", 1},
          {"mig", 0},
          {"corrected", 3},
          {"uncorrected", 0},
          {"clock_reasons", 0x45},
          {"peer", 0},
          {"processes", json::array({json::array({getpid(), 8589934592}), json::array({999999999, nullptr})})}};
}

Machine look_at(const json& machine, std::chrono::milliseconds limit = kLong) {
  ::setenv("FAKE_NVML", machine.dump().c_str(), 1);
  set_library(LOCKSTEP_FAKE_NVML);
  return look(limit);
}

TEST(Gpus, EverythingThatNvmlSays) {
  json other = one_gpu();
  other["bus_id"] = "00000001:AF:00.0";
  const Machine machine = look_at({{"gpus", {one_gpu(), other}}});
  EXPECT_EQ(machine.problem, "");
  EXPECT_EQ(machine.driver, "580.65.06");
  EXPECT_EQ(machine.cuda, 13000);
  ASSERT_EQ(machine.gpus.size(), 2U);
  const Gpu& gpu = machine.gpus[0];
  EXPECT_EQ(gpu.problem, "");
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.bus_id, "0000:3b:00.0");
  EXPECT_EQ(machine.gpus[1].bus_id, "0001:af:00.0");
  EXPECT_EQ(gpu.capability, "9.0");
  EXPECT_EQ(gpu.total_bytes, 85899345920);
  EXPECT_EQ(gpu.used_bytes, 12884901888);
  EXPECT_EQ(gpu.gpu_percent, 97);
  EXPECT_EQ(gpu.memory_percent, 41);
  EXPECT_EQ(gpu.temperature, 64);
  EXPECT_EQ(gpu.ecc, true);
  EXPECT_EQ(gpu.persistence, true);
  EXPECT_EQ(gpu.mig, false);
  EXPECT_EQ(gpu.corrected_errors, 3);
  EXPECT_EQ(gpu.uncorrected_errors, 0);
  ASSERT_TRUE(gpu.slowed_by.has_value());
  EXPECT_THAT(*gpu.slowed_by, ElementsAre("power cap", "thermal slowdown (hardware)")) << "idle is no reason";
  ASSERT_EQ(gpu.processes.size(), 2U);
  EXPECT_EQ(gpu.processes[0].pid, getpid());
  EXPECT_EQ(gpu.processes[0].bytes, 8589934592);
  EXPECT_THAT(gpu.processes[0].name, HasSubstr("inspectors_gpus"));
  EXPECT_EQ(gpu.processes[1].bytes, std::nullopt);
  EXPECT_EQ(gpu.processes[1].name, "") << "there is no such process";
  EXPECT_THAT(gpu.peers, ElementsAre(1));
}

TEST(Gpus, ManyProcesses) {
  json gpu = one_gpu();
  gpu["processes"] = json::array();
  for (int i = 0; i < 100; ++i) gpu["processes"].push_back({900000000 - i, 1000});
  const Machine machine = look_at({{"gpus", {gpu}}});
  ASSERT_EQ(machine.gpus.at(0).processes.size(), 100U);
  EXPECT_EQ(machine.gpus[0].processes[0].pid, 900000000 - 99);
}

TEST(Gpus, WhatAGpuDoesNotSupportIsUnset) {
  const Machine machine = look_at({{"gpus", {{{"name", "Old"}, {"total", 100}, {"used", 1}}}}});
  const Gpu& gpu = machine.gpus.at(0);
  EXPECT_EQ(gpu.problem, "");
  EXPECT_EQ(gpu.name, "Old");
  EXPECT_FALSE(gpu.temperature || gpu.ecc || gpu.corrected_errors || gpu.slowed_by || gpu.gpu_percent || gpu.mig);
  EXPECT_THAT(gpu.processes, IsEmpty());
}

TEST(Gpus, ALostOneIsNamedAndTheOthersAreShown) {
  json lost = one_gpu();
  lost["lost"] = 15;
  const Machine machine = look_at({{"gpus", {lost, one_gpu()}}});
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_THAT(machine.gpus[0].problem, HasSubstr("GPU is lost"));
  EXPECT_EQ(machine.gpus[1].problem, "");
  EXPECT_EQ(machine.gpus[1].temperature, 64);
}

// Rule 4.
TEST(Gpus, Rule4AGpuWhoseCallsNeverReturnHoldsUpNeitherTheOthersNorTheAnswer) {
  json stuck = one_gpu();
  stuck["blocks"] = true;
  const Machine machine = look_at({{"gpus", {stuck, one_gpu(), one_gpu()}}}, 2s);
  ASSERT_EQ(machine.gpus.size(), 3U);
  EXPECT_THAT(machine.gpus[0].problem, HasSubstr("does not answer"));
  for (const size_t i : {1, 2}) EXPECT_EQ(machine.gpus[i].name, "NVIDIA H100 80GB HBM3") << i;
}

TEST(Gpus, Rule4ADriverThatDoesNotStartInTimeIsAProblemOfTheMachine) {
  EXPECT_THAT(look_at({{"init_blocks", true}, {"gpus", json::array()}}, 100ms).problem, HasSubstr("does not answer"));
}

TEST(Gpus, WithoutADriverThereAreNone) {
  set_library("libnvidia-ml-of-no-driver.so.1");
  const Machine machine = look(kLong);
  EXPECT_THAT(machine.problem, HasSubstr("libnvidia-ml-of-no-driver.so.1"));
  EXPECT_THAT(machine.gpus, IsEmpty());
}

TEST(Gpus, ADriverThatIsNotLoaded) {
  const Machine machine = look_at({{"init", 9}, {"gpus", json::array()}});
  EXPECT_THAT(machine.problem, HasSubstr("Driver Not Loaded"));
}

TEST(Gpus, LinesSurviveTheWayThroughAPipe) {
  ::setenv("FAKE_NVML", json{{"gpus", {one_gpu(), one_gpu()}}}.dump().c_str(), 1);
  set_library(LOCKSTEP_FAKE_NVML);
  std::vector<std::string> written;
  write_lines([&](const std::string& line) { written.push_back(line); });
  ASSERT_EQ(written.size(), 3U);
  Lines lines;
  EXPECT_THAT(lines.machine().problem, HasSubstr("does not answer")) << "nothing has come yet";
  lines.take(written[0]);
  EXPECT_FALSE(lines.complete());
  EXPECT_THAT(lines.machine().gpus.at(1).problem, HasSubstr("does not answer"));
  lines.take("{\"index\":");
  lines.take("a warning of the driver");
  lines.take("{\"index\": 7}");
  lines.take(written[2]);
  lines.take(written[2]);  // twice is once
  EXPECT_FALSE(lines.complete());
  lines.take(written[1]);
  EXPECT_TRUE(lines.complete());
  EXPECT_EQ(lines.machine(), look(kLong));
}

TEST(Gpus, AddressesHaveOneSpelling) {
  EXPECT_EQ(normal_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(normal_bus_id("0000:3b:00.0"), "0000:3b:00.0");
  EXPECT_EQ(normal_bus_id("00010000:AF:1F.7"), "10000:af:1f.7");
  EXPECT_EQ(normal_bus_id("none"), "none");
}

}  // namespace
}  // namespace lockstep::gpus
