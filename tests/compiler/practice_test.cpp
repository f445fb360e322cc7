// The compiler practises while it waits for cells. The session does not see it.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "compiler/process/idle_processor.h"
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

constexpr size_t kWaiting = 3;  // the current state and two copies

SessionSettings practising(int ranks = 1) { return {.ranks = ranks, .environment = {{"LOCKSTEP_PRACTICE", "on"}}}; }

/// Whether the state that has practised is the current one. It has read much of the header, 150 MB, and others little.
bool has_practised(CellSession& session) {
  const std::vector<pid_t> states = session.states();
  if (states.empty()) return false;
  std::ifstream file("/proc/" + std::to_string(states.front()) + "/status");
  for (std::string word; file >> word;)
    if (int64_t kilobytes = 0; word == "RssAnon:" && file >> kilobytes) return kilobytes > 64 << 10;
  return false;
}

void wait_for(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(Practice, CellsDoNotSeeItAndHaveAllTheirCode) {
  CellSession session(practising(2));
  wait_for([&] { return has_practised(session); });
  const auto names = std::get<protocol::Names>(session.ask(protocol::ListNames{}));
  EXPECT_TRUE(names.names.empty());
  const auto found = std::get<protocol::Completions>(session.ask(protocol::Complete{.text = "__lock", .offset = 6}));
  for (const auto& each : found.completions) EXPECT_EQ(each.text.find("practice"), std::string::npos) << each.text;
  check_transcript(session, {
                                {"Net net;", "error: unknown type name 'Net'"},
                                {"Held held;", "error: unknown type name 'Held'"},
                                {"practice()", "error: use of undeclared identifier 'practice'"},
                            });
  const auto mistyped = session.run("Net net;");
  EXPECT_EQ(mistyped.compiled.rendered.find("did you mean"), std::string::npos) << mistyped.compiled.rendered;
  // What it has instantiated, no rank has loaded.
  check_transcript(
      session,
      {
          {"struct Net : torch::nn::Module {\n"
           "  torch::nn::Linear fc{register_module(\"fc\", torch::nn::Linear(8, 2))};\n"
           "  torch::Tensor forward(torch::Tensor x) { return torch::relu(fc(x)); }\n"
           "};",
           ""},
          {"auto net = std::make_shared<Net>();\ntorch::optim::SGD sgd(net->parameters(), 0.1);", ""},
          {"net->forward(torch::ones({4, 8})).square().mean().backward(); sgd.step(); sgd.zero_grad();", ""},
          {"torch::nn::Sequential layers(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4));", ""},
          {"layers->forward(torch::ones({1, 8})).numel()", "=> 4\n"},
          {"struct Sample { std::string name; double value; };\n"
           "std::vector<Sample> samples{{\"b\", 2}, {\"a\", 1}};\n"
           "std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.value < b.value; "
           "});",
           ""},
          {"std::map<std::string, Sample> table{{\"a\", samples[0]}};\ntable[\"a\"].name", "=> \"a\"\n"},
      });
  EXPECT_EQ(session.run("auto own = std::make_shared<std::map<std::string, Sample>>();", RankSet{0}).text(), "");
  EXPECT_EQ(session.run("std::make_shared<std::map<std::string, Sample>>()->size()").text(), "=> 0\n");
}

TEST(Practice, ACellThatComesMeanwhileIsCompiledAtOnce) {
  CellSession session(practising());
  wait_for([&] { return session.states().size() > kWaiting || has_practised(session); });
  EXPECT_EQ(session.run("int x = 3;").text(), "");
  wait_for([&] { return has_practised(session); });  // after the cell
  EXPECT_EQ(session.run("x").text(), "=> 3\n");
}

TEST(Practice, CellsWithWhichItDoesNotCompile) {
  CellSession session(practising());
  ASSERT_EQ(session.run("#define make_shared no_such_function").text(), "");
  std::this_thread::sleep_for(std::chrono::seconds(2));  // in which it tries
  EXPECT_FALSE(has_practised(session));
  check_transcript(session, {{"int x = 1;", ""}, {"make_shared", "error: undeclared identifier"}, {"x", "=> 1\n"}});
}

TEST(Practice, CanBeSwitchedOff) {
  CellSession session({.environment = {{"LOCKSTEP_PRACTICE", "off"}}});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(session.states().size(), kWaiting);
  EXPECT_FALSE(has_practised(session));
}

// Sessions that start at the same time need the processors.
TEST(Practice, SeesThatEveryProcessorIsWanted) {
  std::atomic<bool> ends = false;
  std::vector<std::jthread> busy;
  for (long i = 0; i <= ::sysconf(_SC_NPROCESSORS_ONLN); ++i)
    busy.emplace_back([&] {
      while (!ends) {
      }
    });
  EXPECT_FALSE(compiler::has_idle_processor());
  ends = true;
}

}  // namespace
}  // namespace lockstep::compiler_test
