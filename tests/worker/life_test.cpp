// How a worker comes and goes: what it says at the start, what it refuses, and that nothing of it is left.
#include <arpa/inet.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  return line[line.rfind(')') + 2] != 'Z';
}

TEST(Start, SaysWhoItIs) {
  FakeHub hub;
  hub.start();
  const auto hello = hub.expect<Hello>();
  EXPECT_EQ(hello.rank, 0);
  EXPECT_EQ(hello.pid, hub.process().pid());
  EXPECT_EQ(hello.device, "cpu");
  EXPECT_EQ(hello.versions.protocol, kProtocolVersion);
  EXPECT_FALSE(hello.versions.libtorch.empty());
  EXPECT_GT(hello.cell_limit, 100);
  hub.send(Prelude{});
  EXPECT_EQ(hub.expect<Ready>().threads, 1);
}

struct BadVariable {
  const char* name;
  const char* value;
  const char* fix;
};

void PrintTo(const BadVariable& variable, std::ostream* stream) { *stream << variable.name << "=" << variable.value; }

class BadEnvironment : public ::testing::TestWithParam<BadVariable> {};

TEST_P(BadEnvironment, IsNamed) {
  const auto& [name, value, fix] = GetParam();
  FakeHub hub;
  hub.start(0, {{name, value}});
  const auto message = hub.expect<NotReady>().message;
  EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr(fix)));
  EXPECT_EQ(hub.process().wait().code, 3);
}

INSTANTIATE_TEST_SUITE_P(Variables, BadEnvironment,
                         ::testing::Values(BadVariable{"LOCKSTEP_RANK", "7", "0 to 0"},
                                           BadVariable{"LOCKSTEP_WORLD_SIZE", "0", "at least 1"},
                                           BadVariable{"LOCKSTEP_DEVICE", "gpu", "cpu or cuda:N"},
                                           BadVariable{"LOCKSTEP_THREADS", "many", "whole number"},
                                           BadVariable{"LOCKSTEP_STORE", "nowhere", "HOST:PORT"},
                                           BadVariable{"LOCKSTEP_BACKEND", "pigeon",
                                                       "auto, gloo, shared_memory, nccl or cpu:gloo,cuda:nccl"},
                                           BadVariable{"LOCKSTEP_CHECK_COLLECTIVES", "2", "0 to 1"},
                                           BadVariable{"LOCKSTEP_LIFELINE_FD", "999", "open descriptor"},
                                           BadVariable{"LOCKSTEP_OUTPUT_FDS", "7,8,9", "six open descriptors"},
                                           BadVariable{"LOCKSTEP_ARGUMENTS", "[", "JSON"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Start, WithoutAPlugInForItsGpuSaysSo) {
  FakeHub hub;
  hub.start(0, {{"LOCKSTEP_DEVICE", "cuda:0"}});
  // LibTorch for the CPU, or one for GPUs on a machine without a driver.
  EXPECT_THAT(hub.expect<NotReady>().message,
              AllOf(HasSubstr("cuda:0"), AnyOf(HasSubstr("tools/setup --gpu"), HasSubstr("driver"))));
  EXPECT_EQ(hub.process().wait().code, 3);
}

TEST(Start, APlugInThatCantBeLoadedIsQuoted) {
  FakeHub hub;
  hub.start(0, {{"LOCKSTEP_DEVICE", "cuda:0"}, {"LOCKSTEP_PLUGIN", "/nowhere/plug-in.so"}});
  EXPECT_THAT(hub.expect<NotReady>().message, AllOf(HasSubstr("/nowhere/plug-in.so: cannot open shared object file"),
                                                    HasSubstr("CUDA_VISIBLE_DEVICES=")));
}

/// A rank on a GPU of the stand-in.
Environment on_stand_in(Environment more = {}) {
  more.insert(
      {{"LOCKSTEP_DEVICE", "cuda:0"}, {"LOCKSTEP_BACKEND", "auto"}, {"LOCKSTEP_PLUGIN", LOCKSTEP_STAND_IN_PLUGIN}});
  return more;
}

TEST(Start, RanksOnGpusHaveGroupsOfThePlugIn) {
  FakeHub hub(2);
  hub.start_ready(on_stand_in({{"LOCKSTEP_GPU_ID", "3"}}));
  for (const int rank : {0, 1}) hub.send(Builtin{.cell = 1, .function = function::Barrier()}, rank);
  for (const int rank : {0, 1}) EXPECT_EQ(hub.expect<Done>(rank).status, CellStatus::ok);
  const auto status = hub.query(question::Status());
  EXPECT_EQ(status.device, "cuda:0");
  EXPECT_EQ(status.device_name, "Stand-in");
}

TEST(Start, AGpuThatThePlugInRefusesIsNamed) {
  FakeHub hub;
  hub.start(0, on_stand_in({{"LOCKSTEP_DEVICE", "cuda:2"}}));
  EXPECT_THAT(hub.expect<NotReady>().message, HasSubstr("cuda:2 can't be used: the stand-in has GPU 0 only"));
}

TEST(Start, WithoutNcclInThePlugInOnlyGlooWillDo) {
  {
    FakeHub hub;
    hub.start(0, on_stand_in({{"STAND_IN_WITHOUT_NCCL", "1"}}));
    EXPECT_THAT(hub.expect<NotReady>().message, AllOf(HasSubstr("asked to have none"), HasSubstr("--backend gloo")));
  }
  FakeHub hub;
  hub.start_ready(on_stand_in({{"STAND_IN_WITHOUT_NCCL", "1"}, {"LOCKSTEP_BACKEND", "gloo"}}));
}

TEST(Start, WithoutAHubSaysSoOnStandardError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd out(ends[0]);
  Fd in(ends[1]);
  Process worker({}, {}, {}, in.get());
  in.reset();
  EXPECT_THAT(read_line(out.get()), HasSubstr("LOCKSTEP_"));
  EXPECT_EQ(worker.wait().code, 3);
}

TEST(Start, WithAPreludeThatIsMissingSaysSo) {
  FakeHub hub;
  hub.start();
  hub.expect<Hello>();
  hub.send(Prelude{"/nowhere/prelude.so"});
  EXPECT_THAT(hub.expect<NotReady>().message, HasSubstr("prelude"));
}

TEST(Shutdown, EndsAnIdleRank) {
  FakeHub hub;
  hub.start_ready();
  hub.send(Shutdown{});
  EXPECT_EQ(hub.process().wait().code, 0);
}

TEST(Shutdown, EndsARankThatDoesNotStop) {
  FakeHub hub;
  hub.start_ready();
  hub.run(hub.load("loops", "stubborn"));
  hub.send(Shutdown{});
  hub.process().wait();
}

TEST(Lifeline, EndTakesARankAndItsChildren) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "grandchild");
  const pid_t grandchild = std::stoi(hub.output(done.cell));
  ASSERT_TRUE(alive(grandchild));
  hub.run(hub.load("loops", "stubborn"));
  hub.end_lifeline();
  EXPECT_TRUE(eventually([&] { return !hub.process().running(); }));
  EXPECT_TRUE(eventually([&] { return !alive(grandchild); }));
}

TEST(Store, KeepsGroupsAndEndsThemWithTheSession) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "grandchild");
  const pid_t grandchild = std::stoi(hub.output(done.cell));
  hub.store().tell(std::to_string(hub.process().pid()));
  // A process that was taken back is left alone.
  Process other({"--store"}, {{"LOCKSTEP_LIFELINE_FD", "0"}});
  hub.store().tell(std::to_string(other.pid()));
  hub.store().tell("-" + std::to_string(other.pid()));
  hub.store().tell("nonsense");
  ::kill(hub.process().pid(), SIGKILL);
  hub.store().end_lifeline();
  EXPECT_EQ(hub.store().wait().code, 0);
  EXPECT_TRUE(eventually([&] { return !alive(grandchild); }));
}

TEST(Store, EndsWhatLeftTheGroupsWithTheSession) {
  FakeHub hub(2);
  hub.start_ready();
  const int64_t cell = hub.load("output", "daemon_grandchild");
  hub.run(cell);
  for (const int rank : {0, 1}) hub.expect<Done>(rank);
  std::vector<pid_t> daemons;
  for (const int rank : {0, 1}) daemons.push_back(std::stoi(hub.output(cell, Stream::standard_output, rank)));
  for (const pid_t daemon : daemons) {
    ASSERT_TRUE(alive(daemon));
    EXPECT_EQ(::getsid(daemon) == ::getsid(hub.process().pid()), false) << "it has left the rank's group";
  }
  StoreProcess other(hub.directory() + "x");  // of another session: it stays
  ::kill(hub.process(0).pid(), SIGKILL);
  hub.process(0).wait();
  hub.store().end_lifeline();
  EXPECT_EQ(hub.store().wait().code, 0);
  for (const pid_t daemon : daemons) EXPECT_FALSE(alive(daemon)) << "the store waits for the end of what it kills";
  EXPECT_FALSE(hub.process(1).running()) << "it is the session's, too";
  EXPECT_TRUE(other.running());
}

TEST(Store, HoldsSoMuchAndNoMore) {
  FakeHub hub;  // starts the store alone
  const std::string address = hub.store().address();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const auto append = [](std::string& bytes, auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  // As c10d's client does: validate, then set, a megabyte each time. Some 2 GB at most.
  std::string hello;
  append(hello, uint8_t{0});
  append(hello, uint32_t{0x3C85F7CE});
  bool refused = ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) < 0;
  const std::string value(1 << 20, 'x');
  int sent = 0;
  for (; sent < 2000 && !refused; ++sent) {
    const std::string key = "/key-" + std::to_string(sent);
    std::string bytes;
    append(bytes, uint8_t{1});
    append(bytes, uint64_t{key.size()});
    bytes += key;
    append(bytes, uint64_t{value.size()});
    bytes += value;
    for (size_t at = 0; at < bytes.size() && !refused;) {
      const ssize_t n = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n < 0) refused = true;
      at += static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
  }
  ::close(fd);
  EXPECT_TRUE(refused);
  EXPECT_GT(sent, 100) << "what a session needs fits";
  EXPECT_LT(sent, 600);
}

TEST(Store, WithoutALifelineSaysSo) {
  Process store({"--store"}, {});
  EXPECT_EQ(store.wait().code, 3);
}

/// Local addresses that a process listens on, "ADDRESS:PORT" in the kernel's hexadecimal form.
std::vector<std::string> listeners(pid_t pid) {
  std::vector<std::string> inodes, found;
  const std::string fds = "/proc/" + std::to_string(pid) + "/fd";
  DIR* directory = ::opendir(fds.c_str());
  if (!directory) return found;
  while (const dirent* entry = ::readdir(directory)) {
    char target[128] = {};
    if (::readlink((fds + "/" + entry->d_name).c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string text = target;
    if (text.starts_with("socket:[")) inodes.push_back(text.substr(8, text.size() - 9));
  }
  ::closedir(directory);
  for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/" + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmit, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmit >> uid >> timeout >> inode;
      const bool listens = state == "0A" || (std::string(table).starts_with("udp") && state == "07");
      if (listens && std::find(inodes.begin(), inodes.end(), inode) != inodes.end())
        found.push_back(std::string(table) + " " + local);
    }
  }
  return found;
}

TEST(Session, ListensOnTheLoopbackInterfaceOnly) {
  FakeHub hub(2);
  hub.start_ready();
  std::vector<std::string> all = listeners(hub.store().pid());
  EXPECT_FALSE(all.empty()) << "the store listens";
  for (const int rank : {0, 1})
    for (auto& listener : listeners(hub.process(rank).pid())) all.push_back(std::move(listener));
  for (const auto& listener : all) EXPECT_THAT(listener, HasSubstr("tcp 0100007F:")) << "127.0.0.1";
}

TEST(Load, AConstructorMayWaitForAThreadThatCallsTheCLibrary) {
  FakeHub hub;
  hub.start_ready();
  EXPECT_EQ(hub.run_cell("constructor", "nothing").status, CellStatus::ok);
}

TEST(Fork, ChildThatLeavesTheCellIsNoSecondRank) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "fork_and_leave");
  EXPECT_EQ(hub.output(done.cell), "child parent");
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok);
  EXPECT_FALSE(hub.has<Done>()) << "one answer for each cell";
}

TEST(Configure, SetsEnvironmentAndDirectory) {
  FakeHub hub;
  hub.start_ready();
  Configure configure;
  configure.directory = hub.directory();
  configure.environment["LOCKSTEP_TEST_COLOUR"] = "green";
  hub.send(configure);
  hub.run_cell("output", "nothing");
  std::error_code error;
  char target[512] = {};
  ASSERT_GT(::readlink(("/proc/" + std::to_string(hub.process().pid()) + "/cwd").c_str(), target, 511), 0);
  EXPECT_EQ(std::string(target), hub.directory());
}

}  // namespace
}  // namespace lockstep::testing
