// The agent's two threads and its connections. agent.h has what they promise.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/agent/agent.h"

namespace lockstep::agent {

/// Returns what answers a request of that name; nothing for a name that is not registered.
std::optional<std::pair<Handler, Runs>> find_handler(const std::string& name);
std::vector<std::string> handler_names();

/// Reads a request: an object with its name in "request". Returns null for a line that is none, or is nested too deeply.
nlohmann::json read_request(std::string_view line);

class Server {
 public:
  /// Listens at `socket`, a path at which nothing is, and starts the thread. Throws Error.
  explicit Server(const std::string& socket);

  /// Ends the threads. Waits for what they are doing, but not longer than a second each: a thread that is stuck then
  /// keeps this object, which is why it is never destroyed.
  void stop();

  /// Called in a child of the process, which has the descriptors and not the threads. Async-signal-safe.
  void close_in_child();

 private:
  struct Connection {
    int fd = -1;
    std::string in, out;
    bool waits = false;  // for the second thread
    bool ends = false;  // when `out` is sent
  };
  struct Aside {
    uint64_t connection = 0;
    std::string name;
    Handler handler;
    nlohmann::json request;
  };

  void run();
  void run_aside();
  void accept_all();
  bool refuse();  // false: no connection waits
  bool receive(uint64_t id, Connection& connection);
  void serve_lines(uint64_t id, Connection& connection);
  /// Returns an answer, or nothing if it comes from the second thread later.
  std::optional<std::string> answer(uint64_t id, const std::string& line);
  void take_answers();
  bool send_out(Connection& connection);
  void wake();
  int keep(int fd);
  void drop(int fd);

  int listener_ = -1, wake_ = -1;
  int spare_ = -1;  // given up to refuse a connection where no descriptor is left
  uint64_t next_ = 1;
  std::map<uint64_t, Connection> connections_;  // of the first thread
  std::atomic<int> descriptors_[kMostConnections + 5];  // all that a child must close; -1: free

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false, runs_ = true, aside_runs_ = false;
  std::optional<Aside> aside_;  // waits for the second thread, or is being answered
  bool aside_taken_ = false;
  std::deque<std::pair<uint64_t, std::string>> answers_;
};

}  // namespace lockstep::agent
