// The session's side of the wire, for tests: starts real workers (and a real store) and talks to them as the hub does.
// Waits end with the test's patience; nothing here asserts how long something takes.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "protocol/worker_messages.h"

namespace lockstep::testing {

using Environment = std::map<std::string, std::string>;

/// Descriptor that is closed with its owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  int release();
  void reset();

 private:
  int fd_;
};

/// How a process ended.
struct Ended {
  int signal = 0;
  int code = 0;
};

/// lockstep-worker as a child of the test: leader of its own group, killed with the test.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const Environment& environment, std::vector<int> inherit = {},
          int output = -1);
  ~Process();
  pid_t pid() const { return pid_; }
  /// Waits until it ends; fails the test (and kills it) when it does not.
  Ended wait();
  bool running();

 private:
  pid_t pid_ = -1;
  std::optional<Ended> ended_;
};

std::string read_line(int fd);
/// Waits until `done`, by a deadline; for what has no event to wait for (the end of grandchildren).
bool eventually(const std::function<bool()>& done);

/// A TCPStore in a process of its own.
class StoreProcess {
 public:
  /// Of the session whose folder this is.
  explicit StoreProcess(const std::string& session_directory);
  const std::string& address() const { return address_; }
  pid_t pid() const { return process_->pid(); }
  bool running() { return process_->running(); }
  /// Writes a line for the keeper.
  void tell(const std::string& line);
  /// The session ends.
  void end_lifeline() { lifeline_.reset(); }
  Ended wait() { return process_->wait(); }

 private:
  Fd lifeline_, output_;
  std::optional<Process> process_;
  std::string address_;
};

class FakeHub {
 public:
  explicit FakeHub(int world_size = 1);
  ~FakeHub();

  /// Starts a rank. Values of `changes` that are "-" take a variable away.
  void start(int rank = 0, const Environment& changes = {});
  /// start() of all ranks, Hello, Prelude, Ready.
  void start_ready(const Environment& changes = {});

  void send(const protocol::HubMessage& message, int rank = 0, const std::string& frame = {});

  /// The next message of kind M from `rank`. Output is gathered on the way, other kinds wait for their turn. Throws
  /// std::runtime_error when none comes.
  template <typename M>
  M expect(int rank = 0) {
    for (;;) {
      auto& waiting = inbox_[rank];
      for (auto it = waiting.begin(); it != waiting.end(); ++it) {
        if (!std::holds_alternative<M>(*it)) continue;
        M message = std::get<M>(std::move(*it));
        waiting.erase(it);
        return message;
      }
      receive(typeid(M).name());
    }
  }
  /// Whether a message of kind M has arrived already.
  template <typename M>
  bool has(int rank = 0) {
    drain();
    for (const auto& message : inbox_[rank])
      if (std::holds_alternative<M>(message)) return true;
    return false;
  }

  /// Loads CELL of the fixture library FILE (tests/worker/cells/FILE.cpp) on all ranks, and returns its number.
  int64_t load(const std::string& file, const std::string& cell, std::vector<int> lines = {1, 2, 3, 4});
  /// The bytes of a fixture library.
  static std::string library(const std::string& file);
  void run(int64_t cell);
  /// load(), run(), Done of rank 0 (all ranks have to finish).
  protocol::Done run_cell(const std::string& file, const std::string& cell);

  /// Bytes that came so far, of one cell and of all.
  std::string output(int64_t cell, Stream stream = Stream::standard_output, int rank = 0);
  int64_t total_bytes() const { return total_bytes_; }
  template <typename Q>
  typename Q::Answer query(const Q& question, int rank = 0) {
    return protocol::decode_answer<Q>(ask(question, rank));
  }

  Process& process(int rank = 0) { return *processes_.at(rank); }
  const std::string& directory() const { return directory_; }
  StoreProcess& store() { return *store_; }
  /// The end of the session for all workers.
  void end_lifeline() { lifeline_.reset(); }
  /// Whether output is answered with credit at once (from the start it is).
  void grant_credit(bool grant) { grant_credit_ = grant; }
  int64_t ungranted() const { return ungranted_; }

  /// Kind and bytes of everything that came from rank 0, in order: for tests of order.
  struct Seen {
    std::string kind;
    std::string text;
  };
  std::vector<Seen> seen;

 private:
  nlohmann::json ask(const protocol::Question& question, int rank);
  void receive(const char* waiting_for);
  bool receive_one(std::chrono::milliseconds limit);
  void drain();

  int world_size_;
  std::string directory_;
  Fd lifeline_, lifeline_read_;
  std::optional<StoreProcess> store_;
  zmq::context_t context_{1};
  zmq::socket_t router_{context_, zmq::socket_type::router};
  std::map<int, std::unique_ptr<Process>> processes_;
  std::map<int, std::deque<protocol::WorkerMessage>> inbox_;
  std::map<std::tuple<int, int64_t, Stream>, std::string> output_;
  int64_t total_bytes_ = 0;
  int64_t ungranted_ = 0;
  bool grant_credit_ = true;
  int64_t next_cell_ = 1;
  int64_t next_query_ = 1;
};

}  // namespace lockstep::testing
