// The agent of a rank and what a shell sees of it: python/agent/, shell/jobs/.
#include "python/agent/agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "protocol/runtime_folder.h"
#include "python/agent/stacks.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/find_job.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/rank_ends.h"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace std::chrono_literals;
using nlohmann::json;
using shell::ask_agent;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

constexpr auto kLimit = 10'000ms;

/// A connection without the client's care.
class RawConnection {
 public:
  explicit RawConnection(const std::string& socket, Descriptor fd = unconnected()) : fd_(std::move(fd)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(socket.begin(), socket.end(), address.sun_path);
    connected_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  static Descriptor unconnected() { return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  bool connected() const { return connected_; }
  void send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }
  /// The next line; empty at the end of the connection.
  std::string line() {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t count = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (count <= 0) return "";
      buffer_.append(bytes, static_cast<size_t>(count));
    }
  }

 private:
  Descriptor fd_;
  bool connected_ = false;
  std::string buffer_;
};

/// What `function` returns in a child, as the child's exit status.
template <typename Function>
int in_child(Function function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Agent : public testing::Test {
 protected:
  Agent() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-agent-XXXXXX").string();
    runtime_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_RUNTIME_DIR", runtime_.c_str(), 1);
    for (const char* name : {"LOCKSTEP_JOB", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"}) ::unsetenv(name);
    agent::add_handler("echo", [](const json& request) { return json{{"said", request.value("what", "")}}; });
  }
  ~Agent() override {
    agent::stop();
    fs::remove_all(runtime_);
  }

  static protocol::JobRank rank(int number, int world_size = 4) {
    protocol::JobRank rank;
    rank.rank = number;
    rank.world_size = world_size;
    rank.script = "train.py";
    return rank;
  }
  static std::string socket(int rank = 0) { return protocol::rank_socket(agent::job_folder(), rank); }
  std::string runtime() const { return (runtime_ / "lockstep").string(); }

  fs::path runtime_;
};

TEST_F(Agent, AnswersRequests) {
  ASSERT_EQ(agent::start(rank(0)), "");
  EXPECT_EQ(ask_agent(socket(), {{"request", "echo"}, {"what", "äh\n"}}, kLimit)["said"], "äh\n");
  RawConnection several(socket());
  several.send(R"({"request":"echo","what":"a"})"
               "\n"
               R"({"request":"echo","wh)");
  EXPECT_EQ(json::parse(several.line())["said"], "a");
  several.send(R"(at":"b"})"
               "\n");
  EXPECT_EQ(json::parse(several.line())["said"], "b");
}

TEST_F(Agent, TheFolderSaysWhoTheRankIs) {
  ASSERT_EQ(agent::start(rank(3)), "");
  struct stat status = {};
  ASSERT_EQ(::stat(agent::job_folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  const auto jobs = shell::read_jobs({runtime()});
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_TRUE(jobs[0].is_alive());
  EXPECT_EQ(jobs[0].live_ranks(), RankSet{3});
  EXPECT_EQ(jobs[0].world_size(), 4);
  EXPECT_EQ(jobs[0].ranks[0].facts.pid, ::getpid());
  EXPECT_EQ(jobs[0].ranks[0].facts.script, "train.py");
  EXPECT_THAT(shell::clean_jobs({runtime()}), IsEmpty());
  agent::stop();
  EXPECT_THAT(shell::read_jobs({runtime()}), IsEmpty());
}

TEST_F(Agent, FilesThatCanBeNoRanksAreLeftOut) {
  ASSERT_EQ(agent::start(rank(3)), "");
  json facts = agent::described_rank();
  for (const int64_t size : {int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{1} << 30}) {
    facts["rank"] = 2;
    facts["world_size"] = size;
    protocol::write_at_once(protocol::rank_file(agent::job_folder(), 2), facts.dump());
    const auto jobs = shell::read_jobs({runtime()});
    ASSERT_EQ(jobs.size(), 1U);
    EXPECT_EQ(jobs[0].live_ranks(), RankSet{3}) << size;
    EXPECT_EQ(jobs[0].world_size(), 4) << size;
  }
}

TEST_F(Agent, BadRequestsAreAnswered) {
  ASSERT_EQ(agent::start(rank(0)), "");
  agent::add_handler("throws", [](const json&) -> json { throw std::runtime_error("no such thing"); });
  RawConnection connection(socket());
  for (const char* bad : {"garbage\n", "\n", "[1]\n", "{\"request\":7}\n", "\xff\xfe\n", "{}\n"}) {
    connection.send(bad);
    const json answer = json::parse(connection.line());
    EXPECT_EQ(answer["ok"], false) << bad;
  }
  connection.send("{\"request\":\"nonsense\"}\n");
  EXPECT_THAT(connection.line(), HasSubstr("there is no request"));
  connection.send("{\"request\":\"throws\"}\n");
  EXPECT_THAT(connection.line(), HasSubstr("no such thing"));
  EXPECT_EQ(ask_agent(socket(), {{"request", "echo"}, {"what", "still"}}, kLimit)["said"], "still");
}

TEST_F(Agent, ALineThatIsTooLongEndsTheConnection) {
  ASSERT_EQ(agent::start(rank(0)), "");
  RawConnection connection(socket());
  connection.send(std::string(agent::kLongestRequest + 100'000, 'x'));
  EXPECT_THAT(connection.line(), HasSubstr("at most"));
  EXPECT_EQ(connection.line(), "");
  EXPECT_EQ(ask_agent(socket(), {{"request", "echo"}, {"what", "still"}}, kLimit)["said"], "still");
}

TEST_F(Agent, ARequestThatIsNestedDeeplyIsRefused) {
  ASSERT_EQ(agent::start(rank(0)), "");
  agent::add_handler("aside", [](const json&) { return json::object(); }, agent::Runs::aside);
  RawConnection connection(socket());
  const size_t deep = agent::kLongestRequest - 100;
  for (const char* name : {"echo", "aside"}) {
    connection.send("{\"request\":\"" + std::string(name) + "\",\"more\":" + std::string(deep, '[') + "\n");
    EXPECT_EQ(json::parse(connection.line())["ok"], false);
    connection.send("{\"request\":\"" + std::string(name) + "\",\"more\":" + std::string(deep / 2, '[') +
                    std::string(deep / 2, ']') + "}\n");
    EXPECT_EQ(json::parse(connection.line())["ok"], false);
    connection.send("{\"request\":\"" + std::string(name) + "\",\"more\":[[1],{\"a\":[2]}]}\n");
    EXPECT_EQ(json::parse(connection.line())["ok"], true);
  }
}

TEST_F(Agent, TheEndWaitsForARequestThatAsksWhoTheRankIs) {
  std::promise<void> entered, ends;
  auto may_answer = ends.get_future();
  bool answered = false;
  agent::add_handler("who", [&](const json&) {
    entered.set_value();
    may_answer.wait();
    answered = agent::described_rank().world_size == 4;
    return json::object();
  });
  ASSERT_EQ(agent::start(rank(0)), "");
  RawConnection connection(socket());
  connection.send("{\"request\":\"who\"}\n");
  entered.get_future().wait();
  ends.set_value();
  agent::stop();
  EXPECT_TRUE(answered);
}

TEST_F(Agent, ConnectionsThatSayNothingDoNotBlockOthers) {
  ASSERT_EQ(agent::start(rank(0)), "");
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (size_t i = 0; i < agent::kMostConnections; ++i) {
    idle.push_back(std::make_unique<RawConnection>(socket()));
    idle.back()->send("{\"request\":\"echo\"}\n");
    ASSERT_NE(idle.back()->line(), "");
  }
  EXPECT_THROW(ask_agent(socket(), {{"request", "echo"}}, kLimit), shell::AgentError);
  idle.clear();
  for (int i = 0;; ++i) {  // the agent learns that they are closed
    try {
      ask_agent(socket(), {{"request", "echo"}}, kLimit);
      break;
    } catch (const shell::AgentError&) {
      ASSERT_LT(i, 10'000);
    }
  }
}

TEST_F(Agent, ASlowRequestDoesNotHoldUpOthers) {
  ASSERT_EQ(agent::start(rank(0)), "");
  std::mutex mutex;
  std::condition_variable changed;
  bool entered = false, free = false;
  agent::add_handler(
      "slow",
      [&](const json&) {
        std::unique_lock lock(mutex);
        entered = true;
        changed.notify_all();
        changed.wait(lock, [&] { return free; });
        return json{{"done", true}};
      },
      agent::Runs::aside);
  auto slow = std::async(std::launch::async, [] { return ask_agent(socket(), {{"request", "slow"}}, kLimit); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return entered; });
  }
  EXPECT_EQ(ask_agent(socket(), {{"request", "echo"}, {"what", "now"}}, kLimit)["said"], "now");
  try {
    ask_agent(socket(), {{"request", "slow"}}, kLimit);
    ADD_FAILURE();
  } catch (const shell::AgentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("still answering"));
  }
  {
    const std::lock_guard lock(mutex);
    free = true;
    changed.notify_all();
  }
  EXPECT_EQ(slow.get()["done"], true);
}

TEST_F(Agent, WithoutDescriptorsAConnectionIsRefusedAtOnce) {
  ASSERT_EQ(agent::start(rank(0)), "");
  RawConnection early(socket());  // it stays: its end would give the agent a descriptor
  early.send(R"({"request":"echo","what":"a"})"
             "\n");
  ASSERT_EQ(json::parse(early.line())["said"], "a");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    // The agent may take each descriptor that gets free, so all are made before and kept.
    std::vector<Descriptor> own;
    for (int i = 0; i < 3; ++i) own.push_back(RawConnection::unconnected());
    std::list<RawConnection> kept;
    std::vector<Descriptor> taken;
    for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.emplace_back(fd);
    ASSERT_FALSE(taken.empty());
    for (Descriptor& each : own) {  // the agent keeps the descriptor by which it refuses
      RawConnection& refused = kept.emplace_back(socket(), std::move(each));
      EXPECT_TRUE(refused.connected());
      EXPECT_EQ(refused.line(), "");
    }
    early.send(R"({"request":"echo","what":"b"})"
               "\n");
    EXPECT_EQ(json::parse(early.line())["said"], "b");
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(ask_agent(socket(), {{"request", "echo"}, {"what", "after"}}, kLimit)["said"], "after");
}

TEST_F(Agent, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(agent::start(rank(0)), "");
  // The folder keeps others out already. What if it did not?
  const std::string path = socket();
  ::chmod(runtime_.c_str(), 0755);
  ::chmod(runtime().c_str(), 0755);
  ::chmod(agent::job_folder().c_str(), 0755);
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(in_child([&] {
              if (::setuid(65534) != 0) return 2;
              RawConnection connection(path);
              if (!connection.connected()) return 3;
              connection.send("{\"request\":\"echo\"}\n");
              return connection.line().empty() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(ask_agent(path, {{"request", "echo"}}, kLimit)["ok"], true);
}

TEST_F(Agent, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const fs::path folder = runtime_ / "job-x";
  fs::create_directory(folder);
  ASSERT_EQ(::chown(folder.c_str(), 65534, 65534), 0);
  ::setenv("LOCKSTEP_JOB", folder.c_str(), 1);
  EXPECT_THAT(agent::start(rank(0)), HasSubstr("not a folder of yours"));
  EXPECT_EQ(agent::job_folder(), "");
}

TEST_F(Agent, AChildOfARankHasNone) {
  ASSERT_EQ(agent::start(rank(0)), "");
  const std::string path = socket();
  EXPECT_EQ(in_child([&] {
              if (!agent::job_folder().empty()) return 1;
              if (agent::start(rank(0)).empty()) return 2;
              agent::stop();  // leaves the parent's files
              return ::access(path.c_str(), F_OK) == 0 ? 0 : 3;
            }),
            0);
  EXPECT_EQ(ask_agent(path, {{"request", "echo"}}, kLimit)["ok"], true);
}

TEST_F(Agent, OnlyOneProcessIsARank) {
  ASSERT_EQ(agent::start(rank(0)), "");
  ::setenv("LOCKSTEP_JOB", agent::job_folder().c_str(), 1);
  agent::stop();  // the folder goes; a process that forks after that may be a rank
  shell::JobFolder folder({"torchrun"});
  ::setenv("LOCKSTEP_JOB", folder.path().c_str(), 1);
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const std::string problem = agent::start(rank(0));
    static_cast<void>(!::write(ready[1], problem.empty() ? "y" : "n", 1));
    ::pause();
  }
  char started = '?';
  ASSERT_EQ(::read(ready[0], &started, 1), 1);
  EXPECT_EQ(started, 'y');
  EXPECT_THAT(agent::start(rank(0)), HasSubstr("another process"));
  EXPECT_EQ(agent::start(rank(1)), "");
  EXPECT_EQ(folder.read().live_ranks(), (RankSet{0, 1}));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  const shell::Job job = folder.read();
  EXPECT_EQ(job.live_ranks(), RankSet{1});
  ASSERT_NE(job.rank(0), nullptr);
  EXPECT_FALSE(job.rank(0)->facts.end.has_value());  // it could not say anything
  const auto answers = shell::ask_ranks(job.ranks, {{"request", "echo"}}, kLimit);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.at(1).error, "");
}

TEST_F(Agent, WhatDeadRanksLeftIsRemoved) {
  EXPECT_EQ(in_child([&] { return agent::start(rank(0)).empty() ? 0 : 1; }), 0);  // ends by _exit
  ASSERT_EQ(shell::read_jobs({runtime()}).size(), 1U);
  const shell::Job job = shell::read_jobs({runtime()})[0];
  EXPECT_FALSE(job.is_alive());
  const std::string file = protocol::rank_file(job.folders.at(0), 0);
  for (const char* host : {"elsewhere", job.ranks.at(0).facts.host.c_str()}) {
    json text = job.ranks[0].facts;
    text["host"] = host;
    protocol::write_at_once(file, text.dump());
    if (host == std::string("elsewhere")) {
      EXPECT_THAT(shell::clean_jobs({runtime()}), IsEmpty());
    }
  }
  EXPECT_EQ(shell::clean_jobs({runtime()}).size(), 1U);
  EXPECT_THAT(shell::read_jobs({runtime()}), IsEmpty());
}

TEST_F(Agent, RanksOfOneLauncherAgreeOnTheJob) {
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  for (const char* number : {"0", "1"}) {
    ::setenv("RANK", number, 1);
    EXPECT_EQ(in_child([] {
                protocol::JobRank rank;
                return agent::rank_from_environment(rank) && agent::start(rank).empty() ? 0 : 1;
              }),
              0);
  }
  const auto jobs = shell::read_jobs({runtime()});
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].ranks.size(), 2U);
  ::setenv("MASTER_PORT", "29501", 1);
  in_child([] { return static_cast<int>(agent::start(rank(0)).size()); });
  EXPECT_EQ(shell::read_jobs({runtime()}).size(), 2U);
}

TEST_F(Agent, FilesThatNoRankWroteAreLeftOut) {
  shell::JobFolder folder({"torchrun"});
  for (const auto& [name, text] :
       std::initializer_list<std::pair<const char*, const char*>>{{"rank-0.json", "{"},
                                                                  {"rank-1.json", "[]"},
                                                                  {"rank-2.json", "{\"pid\":\"x\"}"},
                                                                  {"rank-3.json", "{}"},
                                                                  {"rank-x.json", "{}"},
                                                                  {"rank--1.json", R"({"rank":-1,"world_size":2})"},
                                                                  {"rank-99999999999999999999.json", "{}"}})
    protocol::write_at_once(folder.path() + "/" + name, text);
  EXPECT_THAT(folder.read().ranks, IsEmpty());
}

TEST_F(Agent, SaysHowTheRankEnded) {
  shell::JobFolder folder({"torchrun"});
  ::setenv("LOCKSTEP_JOB", folder.path().c_str(), 1);
  ASSERT_EQ(agent::start(rank(0)), "");
  agent::set_end({.how = "threw", .type = "ValueError", .message = "no", .frames = {{"main", "train.py", 7}}});
  agent::set_end({.how = "finished"});
  agent::stop();
  const shell::Job job = folder.read();
  ASSERT_EQ(job.ranks.size(), 1U);
  ASSERT_TRUE(job.ranks[0].facts.end.has_value());
  EXPECT_EQ(job.ranks[0].facts.end->type, "ValueError");
  EXPECT_EQ(job.ranks[0].facts.end->frames.at(0).line, 7);
  EXPECT_FALSE(fs::exists(job.ranks[0].socket));
}

TEST_F(Agent, AStoppedRankCostsTheDeadlineOnly) {
  shell::JobFolder folder({"torchrun"});
  ::setenv("LOCKSTEP_JOB", folder.path().c_str(), 1);
  const pid_t other = ::fork();
  if (other == 0) {
    agent::start(rank(0));
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(other, &status, WUNTRACED);
  const auto answers = shell::ask_ranks(folder.read().ranks, {{"request", "echo"}}, 100ms);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers.at(0).error, HasSubstr("did not answer"));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(Agent, TheStackOfTheMainThreadIsTakenWhereItWaits) {
  agent::add_handler("stacks", [](const json&) { return agent::take_stacks(); });
  ASSERT_EQ(agent::start(rank(0)), "");
  struct sigaction before = {}, after = {};
  ::sigaction(SIGURG, nullptr, &before);
  int never[2];
  ASSERT_EQ(::pipe2(never, O_CLOEXEC), 0);
  auto asked = std::async(std::launch::async, [&] {
    json answer = ask_agent(socket(), {{"request", "stacks"}}, kLimit);
    ::close(never[1]);
    return answer;
  });
  char byte;
  EXPECT_EQ(::read(never[0], &byte, 1), 0);  // restarted after the signal
  const json answer = asked.get();
  EXPECT_EQ(answer["native"].at(0)["object"], "libc.so.6");
  EXPECT_THAT(answer["native"].at(0)["function"].get<std::string>(), HasSubstr("read"));
  ::sigaction(SIGURG, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

int g_python_text = -1;

TEST_F(Agent, NoPythonStackIsReadOnceTheInterpreterEnds) {
  g_python_text = ::memfd_create("text", MFD_CLOEXEC);
  agent::begin_borrowing();
  ::signal(SIGURG, [](int) { static_cast<void>(!::write(g_python_text, "File", 4)); });
  agent::end_borrowing(g_python_text);
  agent::set_lock_check([] { return 0; });
  agent::add_handler("stacks", [](const json&) { return agent::take_stacks(); });
  ASSERT_EQ(agent::start(rank(0)), "");
  EXPECT_EQ(ask_agent(socket(), {{"request", "stacks"}}, kLimit)["python"], "File");
  agent::end_lending();
  const json answer = ask_agent(socket(), {{"request", "stacks"}}, kLimit);
  EXPECT_EQ(answer["python"], "");
  EXPECT_THAT(answer["native"], testing::Not(IsEmpty()));
  agent::set_lock_check(nullptr);
  ::close(g_python_text);
}

TEST_F(Agent, AFileThatCannotBeWrittenSaysWhy) {
  const std::string path = (runtime_ / "file").string();
  protocol::write_at_once(path, "old");
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit most{10, 10};  // the first write takes a part, as on a disk that gets full
              ::setrlimit(RLIMIT_FSIZE, &most);
              errno = 0;
              try {
                protocol::write_at_once(path, std::string(100, 'x'));
              } catch (const Error& error) {
                return std::string(error.what()).find("File too large") == std::string::npos ? 1 : 0;
              }
              return 2;
            }),
            0);
  std::string kept;
  std::getline(std::ifstream(path), kept);
  EXPECT_EQ(kept, "old");
}

TEST(RankEnds, AreNamedByWhatIsKnown) {
  const protocol::RankEnd finished{.how = "finished"}, threw{.how = "threw", .type = "ValueError", .message = "a\nb"};
  const auto words = [](std::optional<int> status, std::optional<protocol::RankEnd> said,
                        std::optional<shell::MemoryKills> kills = {}) {
    shell::SeenEnd end{.wait_status = status, .said = std::move(said)};
    end.note(kills);
    return end.words();
  };
  EXPECT_EQ(words(0, finished), "has finished");
  EXPECT_EQ(words({}, finished), "has finished");
  EXPECT_EQ(words(256, threw), "raised ValueError");
  EXPECT_EQ(words(SIGKILL, {}), "was killed by SIGKILL");
  EXPECT_THAT(words(SIGKILL, {}, shell::MemoryKills{.count = 1}), HasSubstr("a process of this control group"));
  EXPECT_THAT(words(SIGKILL, {}, shell::MemoryKills{.count = 1, .of_machine = true}), HasSubstr("ended a process)"));
  EXPECT_THAT(words(SIGSEGV, {}, shell::MemoryKills{.count = 1}), Not(HasSubstr("out of memory")));
  EXPECT_THAT(words(SIGABRT, {}), HasSubstr("a library called abort(), and its message is in the rank's output"));
  EXPECT_THAT(words(3 << 8, finished), HasSubstr("exit code 3 (sys.exit)"));
  EXPECT_THAT(words(3 << 8, {}), HasSubstr("exit code 3 and said nothing of an exception"));
  EXPECT_THAT(words(3 << 8, protocol::RankEnd{.how = "exited"}), HasSubstr("exit code 3 (main, or exit())"));
  EXPECT_THAT(words({}, {}), HasSubstr("killed, or called os._exit"));

  inspect::Remains remains;
  shell::add_end({.rank = 1, .wait_status = 256, .said = threw}, remains);
  ASSERT_EQ(remains.errors.size(), 1U);
  EXPECT_EQ(remains.errors[0].message, "a");  // its first line
  protocol::RankEnd loader = threw;
  loader.message =
      "Caught OSError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
      "  File \"/x/site-packages/torch/utils/data/_utils/worker.py\", line 3, in loop\n    a\n"
      "  File \"/home/me/data.py\", line 12, in __getitem__\n    b\nOSError: shard 7 is cut off\n";
  inspect::Remains of_loader;
  shell::add_end({.rank = 1, .wait_status = 256, .said = loader}, of_loader);
  EXPECT_EQ(of_loader.errors.at(0).message, "Caught OSError in DataLoader worker process 1: shard 7 is cut off");
  EXPECT_EQ(of_loader.errors.at(0).frames.at(0).line, 12);
  // What the launcher ends after a failure is no failure; what breaks meanwhile is.
  shell::add_end({.rank = 2, .wait_status = SIGTERM, .after_failure = true}, remains);
  shell::add_end({.rank = 3, .wait_status = SIGSEGV, .after_failure = true}, remains);
  shell::add_end({.rank = 4, .wait_status = SIGKILL}, remains);
  ASSERT_EQ(remains.doing.size(), 3U);
  EXPECT_FALSE(remains.doing[0].at_fault);
  EXPECT_TRUE(remains.doing[1].at_fault);
  EXPECT_TRUE(remains.doing[2].at_fault);
}

TEST_F(Agent, TheLaunchersReportSaysHowRanksEnded) {
  const shell::JobFolder folder({"torchrun"});
  EXPECT_THAT(shell::read_launcher_report(folder.path()), IsEmpty());
  protocol::write_at_once(
      protocol::launcher_report(folder.path()),
      R"([{"rank": 0, "pid": 7, "exitcode": -15, "time": 5}, {"rank": 1, "pid": 8, "exitcode": 3, "time": 5},
          {"rank": 2, "pid": 9, "exitcode": -9, "time": 35}])");
  auto failures = shell::read_launcher_report(folder.path());
  ASSERT_EQ(failures.size(), 3U);
  EXPECT_TRUE(failures[0].after_failure);
  EXPECT_EQ(failures[0].words(), "was killed by SIGTERM");
  EXPECT_FALSE(failures[1].after_failure);
  failures[1].unseen = true;
  EXPECT_THAT(failures[1].words(), HasSubstr("ended with exit code 3 before it was watched"));
  EXPECT_TRUE(failures[2].after_failure);
  protocol::write_at_once(protocol::launcher_report(folder.path()), R"([{"rank": "x"}])");
  EXPECT_THAT(shell::read_launcher_report(folder.path()), IsEmpty());
}

TEST_F(Agent, RanksOfAnotherMachineAreNotExpectedHere) {
  ::setenv("WORLD_SIZE", "6", 1);
  ::setenv("RANK", "2", 1);
  ::setenv("LOCAL_RANK", "0", 1);
  const auto absence = [&](const char* local_world_size, int number) {
    ::setenv("LOCAL_WORLD_SIZE", local_world_size, 1);
    protocol::JobRank rank;
    EXPECT_TRUE(agent::rank_from_environment(rank));
    shell::Job job;
    job.ranks.push_back({.facts = rank});
    return job.absence_of(number);
  };
  EXPECT_EQ(absence("2", 3), "has not called this package yet");
  EXPECT_EQ(absence("2", 1), "runs on another machine");
  EXPECT_EQ(absence("2", 4), "runs on another machine");
  EXPECT_EQ(absence("", 3), "runs on another machine, or has not called this package yet");
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}) ::unsetenv(name);
}

TEST_F(Agent, SeveralJobsAreToldApart) {
  ASSERT_EQ(agent::start(rank(0)), "");
  const json facts = agent::described_rank();
  const shell::JobFolder other({"torchrun"});
  json eval = facts;
  eval["script"] = "/home/me/eval.py";
  protocol::write_at_once(protocol::rank_file(other.path(), 0), eval.dump());
  try {
    shell::find_job("");
    ADD_FAILURE() << "one of two was taken";
  } catch (const UsageError& error) {
    // Other tests may have jobs, too.
    const std::string folder = fs::current_path().string();
    EXPECT_THAT(error.what(), testing::StartsWith("several jobs run; name one: lockstep attach JOB\n"));
    for (const std::string& script : {facts.at("script").get<std::string>(), std::string("/home/me/eval.py")})
      EXPECT_THAT(error.what(), testing::ContainsRegex("\n  [^ ]+  1 of 4 ranks of " + script + ", in " + folder +
                                                       ", since [-0-9]+ [:0-9]+"));
  }
}

TEST(RankEnds, TheKernelKnowsHowAProcessEnded) {
  const pid_t child = ::fork();
  if (child == 0) ::raise(SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(shell::wait_status_of_zombie(child), SIGKILL);
  EXPECT_TRUE(shell::is_ending(child));
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(shell::wait_status_of_zombie(child), std::nullopt);
  EXPECT_TRUE(shell::is_ending(child));
  EXPECT_EQ(shell::wait_status_of_zombie(::getpid()), std::nullopt);
  EXPECT_FALSE(shell::is_ending(::getpid()));
}

class CoreFile : public ::testing::TestWithParam<bool> {};

TEST_P(CoreFile, AProcessThatWritesOneIsEndingUntilItIsGone) {
  const bool on_another_thread = GetParam();
  std::string folder = ::testing::TempDir() + "lockstep_core_file_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  constexpr size_t kMemory = 256UL << 20;
  int starts[2];
  ASSERT_EQ(::pipe(starts), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string touched(kMemory, 'x');  // takes a moment to write
    rlimit limit = {};
    ::getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = limit.rlim_max;
    char byte = touched.back();
    if (::chdir(folder.c_str()) == 0 && ::setrlimit(RLIMIT_CORE, &limit) == 0 && ::read(starts[0], &byte, 1) == 1) {
      if (on_another_thread) std::thread(&::abort).join();
      ::abort();
    }
    ::_exit(1);
  }
  EXPECT_FALSE(shell::is_ending(child));
  ASSERT_EQ(::write(starts[1], "x", 1), 1);
  const auto has_ended = [child] {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == child;
  };
  bool was_ending_before_its_end = false, is_ending = false;
  while (!has_ended()) {
    const bool before = is_ending;
    is_ending = shell::is_ending(child);
    EXPECT_FALSE(before && !is_ending);
    was_ending_before_its_end = was_ending_before_its_end || (is_ending && !has_ended());
  }
  EXPECT_TRUE(shell::is_ending(child));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  fs::remove_all(folder);
  ::close(starts[0]);
  ::close(starts[1]);
  if (!WCOREDUMP(status)) GTEST_SKIP() << "this machine writes no core files";
  EXPECT_TRUE(was_ending_before_its_end);
}

INSTANTIATE_TEST_SUITE_P(RankEnds, CoreFile, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "OfAThread" : "OfTheMainThread"; });

TEST_F(Agent, DumpsOfRanksThatRaisedAreRead) {
  const shell::JobFolder folder({"torchrun"});
  protocol::write_at_once(
      protocol::rank_trace(folder.path(), 1, /*nccl=*/false),
      R"({"version":"2.10","entries":[{"record_id":0,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":1,
          "p2p_seq_id":0,"op_id":1,"profiling_name":"gloo:all_reduce","time_created_ns":1,"input_sizes":[[4]],
          "input_dtypes":["Float"],"output_sizes":[[4]],"output_dtypes":["Float"],"state":"scheduled",
          "time_discovered_started_ns":null,"time_discovered_completed_ns":null,"retired":false,"timeout_ms":1,
          "is_p2p":false}]})");
  protocol::write_at_once(protocol::rank_trace(folder.path(), 1, /*nccl=*/true), "garbage");
  inspect::Remains remains;
  shell::add_left_dumps(folder.path(), 1, 3, remains);
  shell::add_left_dumps(folder.path(), 2, 3, remains);
  ASSERT_EQ(remains.evidence.size(), 1U);
  EXPECT_EQ(remains.evidence[0].rank, 1);
  EXPECT_EQ(remains.evidence[0].calls.at(0).op, "all_reduce");
  EXPECT_EQ(remains.unread.size(), 1U);
}

TEST(JobPicture, WhatARankDoesIsInItsStacks) {
  const auto kind = [](std::initializer_list<const char*> functions, const char* python) {
    json native = json::array();
    for (const char* each : functions) native.push_back({{"function", each}, {"object", "libc.so.6"}});
    return shell::doing_of(0, {{"native", native}, {"held", true}}, {{"f", python, 1}}).kind;
  };
  EXPECT_EQ(kind({"clock_nanosleep", "_PyEval_EvalFrameDefault"}, "train.py"), FindingKind::sleeping);
  EXPECT_EQ(kind({"__futex_abstimed_wait", "sem_clockwait", "PyThread_acquire_lock_timed"}, "train.py"),
            FindingKind::lock);
  EXPECT_EQ(kind({"poll", "_PyEval_EvalFrameDefault"}, "/x/torch/utils/data/dataloader.py"), FindingKind::loading_data);
  EXPECT_EQ(kind({"pthread_cond_wait", "c10d::Work::wait"}, "train.py"), FindingKind::collective);
  const auto words = [](const char* function) {
    const json native = {{{"function", "pthread_cond_wait"}}, {{"function", function}}};
    return shell::doing_of(0, {{"native", native}, {"held", true}}, {{"f", "train.py", 1}}).words;
  };
  EXPECT_EQ(words("c10d::ProcessGroupGloo::RecvWork::wait(std::chrono::duration<long>)"), "is in recv");
  EXPECT_EQ(words("c10d::ProcessGroupGloo::SendWork::wait(std::chrono::duration<long>)"), "is in send");
  EXPECT_EQ(words("c10d::ProcessGroupGloo::AsyncWork::wait()"), "is in a collective");
  EXPECT_EQ(words("c10d::TCPStore::wait(std::vector<std::string> const&)"), "waits for a key of the store");
  const auto connects = [](const char* function) {
    const json stacks = {{"native", {{{"function", function}}}}, {"held", true}, {"connecting", {"10.0.0.1:29500"}}};
    return shell::doing_of(0, stacks, {{"f", "train.py", 1}}).words;
  };
  EXPECT_EQ(connects("c10d::TCPStore::TCPStore(std::string)"),
            "gets no answer from 10.0.0.1:29500, to which it connects");
  EXPECT_EQ(connects("c10d::TCPStore::wait(std::vector<std::string> const&)"), "waits for a key of the store")
      << "another thread connects";
  EXPECT_EQ(shell::doing_of(0, {{"native", {{{"function", "poll"}, {"object", "libc.so.6"}}}}, {"held", true}},
                            {{"call", "/x/lockstep/core/_library.py", 1}, {"main", "train.py", 2}})
                .words,
            "waits in an inspector of Lockstep for other ranks");
  // At the interpreter's lock: a thread that runs Python, unless another thread keeps the lock.
  const auto at_lock = [](const char* lock) {
    const json native = {{{"function", "pthread_cond_timedwait"}, {"object", "libc.so.6"}},
                         {{"function", ""}, {"object", "python3.11"}}};
    return shell::doing_of(0, {{"native", native}, {"held", true}, {"at_lock", lock}}, {{"f", "train.py", 1}});
  };
  EXPECT_EQ(at_lock("free").kind, FindingKind::computing);
  EXPECT_EQ(at_lock("held").kind, FindingKind::lock);
  EXPECT_EQ(at_lock("held").words, "waits for the interpreter's lock, which another thread holds");
}

}  // namespace
