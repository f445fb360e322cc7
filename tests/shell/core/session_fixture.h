// A session with fake workers and a fake compiler, and the events that it reported.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stop_token>
#include <thread>
#include <type_traits>

#include "protocol/files.h"
#include "shell/cells/stop_machines.h"
#include "shell/session/session.h"

namespace lockstep::shell {

struct Recorder : EventSink {
  std::vector<Event> events;
  std::function<void(const Event&)> also;
  void take(const Event& event) override {
    events.push_back(event);
    if (also) also(event);
  }
  template <typename T>
  std::vector<T> all() const {
    std::vector<T> result;
    for (const auto& event : events)
      if (const auto* e = std::get_if<T>(&event)) result.push_back(*e);
    return result;
  }
  /// The bytes that `rank` wrote to `stream`, put together.
  std::string bytes(int rank, Stream stream = Stream::standard_output) const {
    std::string result;
    for (const auto& e : all<OutputEvent>())
      if (e.stream == stream && e.ranks.contains(rank)) result += e.bytes;
    return result;
  }
};

/// Pids of this process's children, in the order in which they were started: compiler, the process that the store and ranks
/// are copies of, store, ranks.
inline std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::vector<pid_t> result;
  for (pid_t pid; file >> pid;) result.push_back(pid);
  return result;
}

/// The letter that /proc has for what a process is at; Z where there is none.
inline char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return 'Z';
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? 'Z' : text[name_end + 2];
}

inline pid_t starter() { return children().at(1); }

/// Whether a rank is a copy: the environment that the kernel shows is then not its own.
inline bool is_copy(pid_t pid) {
  return protocol::read_file("/proc/" + std::to_string(pid) + "/environ")->find("LOCKSTEP_IDENTITY=") ==
         std::string::npos;
}

/// Whether the store is a copy: another one shows in its environment which descriptor it listens on.
inline bool store_is_copy(pid_t pid) {
  return protocol::read_file("/proc/" + std::to_string(pid) + "/environ")->find("LOCKSTEP_LISTEN_FD=") ==
         std::string::npos;
}

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // as the program does: a pipe to a process that has ended
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    runtime_ = name;
    ::setenv("LOCKSTEP_BIN", LOCKSTEP_FAKES, 1);
    ::setenv("XDG_RUNTIME_DIR", name.c_str(), 1);
    ::setenv("XDG_STATE_HOME", (name + "/state").c_str(), 1);
    ::unsetenv("FAKE_WORKER");
    ::unsetenv("FAKE_COMPILER");
  }
  void TearDown() override {
    session_.reset();
    std::filesystem::remove_all(runtime_);
  }
  Session& start(int ranks, SessionOptions options = {}) {
    options.num_processes = ranks;
    session_ = std::make_unique<Session>(options, recorder_);
    session_->start();
    recorder_.events.clear();
    return *session_;
  }
  CellOutcome run(const std::string& text) {
    recorder_.events.clear();
    return session_->run(text);
  }
  /// Calls interrupt() once `event` of this kind has come.
  template <typename T>
  void interrupt_on(int times = 1) {
    recorder_.also = [this, times](const Event& event) {
      if (!std::holds_alternative<T>(event)) return;
      for (int i = 0; i < times; ++i) session_->interrupt();
    };
  }

  /// Runs `text` while Ctrl-C is pressed again and again, by a person who waits each time for what it does, from the
  /// first event of this kind on.
  template <typename T>
  CellOutcome run_while_pressing(const std::string& text) {
    std::jthread person;
    recorder_.also = [&](const Event& event) {
      if (!std::holds_alternative<T>(event) || person.joinable()) return;
      person = std::jthread([this](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any ended;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          session_->interrupt();
          ended.wait_for(lock, stop, UserStop::kRepeat + UserStop::kRepeat / 2, [] { return false; });
        }
      });
    };
    const CellOutcome outcome = run(text);
    recorder_.also = nullptr;
    return outcome;
  }

  std::filesystem::path runtime_;
  Recorder recorder_;
  std::unique_ptr<Session> session_;
};

}  // namespace lockstep::shell
