#include "collectives/transport/mixed_connector.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/transport/backend_factory.h"
#include "protocol/blocked_signals.h"
#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {
constexpr const char* kGloo = "gloo";

/// Calls a function for each connection that ends.
class HangUpWatch {
 public:
  /// `descriptors` must stay open until the destructor has returned.
  HangUpWatch(std::vector<int> descriptors, std::function<void()> ended) {
    if (descriptors.empty()) return;
    state_->end = make_event();
    if (!state_->end) throw Error("a connection can't be watched: the process is out of descriptors (ulimit -n)");
    const BlockedSignals signals;  // they are for the threads of the program
    thread_ = std::thread([state = state_, descriptors = std::move(descriptors), ended = std::move(ended)]() mutable {
      run(*state, std::move(descriptors), ended);
    });
  }
  ~HangUpWatch() {
    if (!thread_.joinable()) return;
    state_->over = true;
    set_event(state_->end.get());
    if (thread_.get_id() == std::this_thread::get_id())
      thread_.detach();  // the callback has let go of the connector; the thread ends when that returns
    else
      thread_.join();
  }
  HangUpWatch(const HangUpWatch&) = delete;
  HangUpWatch& operator=(const HangUpWatch&) = delete;

 private:
  struct State {
    Descriptor end;
    std::atomic<bool> over = false;
  };

  static void run(const State& state, std::vector<int> descriptors, const std::function<void()>& ended) {
    pthread_setname_np(pthread_self(), "lockstep-peers");
    std::vector<pollfd> watched = {{.fd = state.end.get(), .events = POLLIN, .revents = 0}};
    for (int fd : descriptors) watched.push_back({.fd = fd, .events = POLLRDHUP, .revents = 0});
    while (!state.over && poll_until(watched) >= 0) {
      for (size_t i = 1; i < watched.size() && !state.over; ++i) {
        if (watched[i].fd < 0 || watched[i].revents == 0) continue;
        watched[i].fd = -1;  // poll passes over it
        ended();
      }
    }
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

class MixedConnector : public BackendConnector {
 public:
  MixedConnector(const BackendConfig& config, const GroupDescription& group) : group_(group) {
    for (const BackendConfig::Part& part : config.parts()) {
      if (part.backend == kGloo) continue;
      parts_.push_back({part.backend, find_backend(part.backend).factory(group)});
    }
    parts_.insert(parts_.begin(), {kGloo, find_backend(kGloo).factory(group)});
  }
  ~MixedConnector() override { watch_.reset(); }

  std::string announcement() override {
    nlohmann::json all = nlohmann::json::array();
    for (const Part& part : parts_) all.push_back(part.connector->announcement());
    return all.dump();
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<std::string>& peers,
                                            std::chrono::milliseconds connect_timeout) override {
    std::vector<MixedBackend::Part> backends;
    connecting_ = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::vector<std::string> theirs;
      for (const std::string& peer : peers) {
        const auto all = nlohmann::json::parse(peer, nullptr, false);
        if (!all.is_array() || all.size() != parts_.size())
          throw Error(fmt::format("the ranks of group {} have different backends", group_.name));
        theirs.push_back(all[i].get<std::string>());
      }
      const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(parts_[i].backend, store);
      backends.push_back({parts_[i].backend, parts_[i].connector->connect(own_keys, theirs, connect_timeout)});
      // From here on a rank that leaves ends what the others wait for on the device.
      if (i == 0)
        watch_ = std::make_unique<HangUpWatch>(parts_[0].connector->connections(), [this] { connection_ended(); });
    }
    connecting_ = false;
    if (peer_left_) connection_ended();  // it was not reported yet
    // A rank that is connected may destroy the group at once, which would interrupt those that still connect.
    c10d::BarrierOptions barrier;
    barrier.timeout = connect_timeout;
    backends[0].transport->barrier(barrier)->wait();
    return c10::make_intrusive<MixedBackend>(group_.group_rank, static_cast<int>(group_.ranks.size()),
                                             std::move(backends));
  }

  void interrupt() noexcept override {
    // The device's part comes first: a peer that sees Gloo's connections end aborts its own communicators.
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->connector->interrupt();
  }

  void close() override {
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->connector->close();
  }

  void on_connection_end(std::function<void()> callback) override { callback_ = std::move(callback); }

  bool lost_writes() const noexcept override { return parts_[0].connector->lost_writes(); }
  /// A device reports the end of a time limit with the result of its operation. What its transport throws at once is a
  /// peer's doing only where a connection has ended; else it is an error of this rank, with a text of its own.
  bool is_transport_error(const std::exception_ptr& error) const noexcept override {
    if (parts_[0].connector->is_transport_error(error)) return true;
    if (!lost_connection()) return false;
    for (const Part& part : parts_)
      if (part.connector->is_transport_error(error)) return true;
    return false;
  }
  bool lost_connection() const noexcept override {
    for (const Part& part : parts_)
      if (part.connector->lost_connection()) return true;
    return false;
  }

 private:
  struct Part {
    std::string backend;
    std::unique_ptr<BackendConnector> connector;
  };

  /// Runs on the watch's thread, and once on that of connect().
  void connection_ended() {
    peer_left_ = true;
    if (connecting_) {
      for (size_t i = 1; i < parts_.size(); ++i) parts_[i].connector->interrupt();
    } else if (callback_) {
      callback_();
    }
  }

  const GroupDescription group_;
  std::vector<Part> parts_;  // Gloo first
  std::function<void()> callback_;
  std::atomic<bool> connecting_ = false, peer_left_ = false;
  std::unique_ptr<HangUpWatch> watch_;  // last: its thread uses the rest
};

}  // namespace

c10d::Backend& backend_of_part(c10d::Backend& transport, const std::string& backend) {
  const auto* mixed = dynamic_cast<const MixedBackend*>(&transport);
  if (!mixed) return transport;
  for (const MixedBackend::Part& part : mixed->parts())
    if (part.backend == backend) return *part.transport;
  throw Error(fmt::format("this group has no part on {}", backend));
}

std::unique_ptr<BackendConnector> make_connector(const BackendConfig& config, const GroupDescription& group) {
  // Gloo for a device takes the tensors of all others as well.
  const auto gloo = [](const BackendConfig::Part& part) { return part.works_as_gloo(); };
  if (!config.device_part() || std::all_of(config.parts().begin(), config.parts().end(), gloo))
    return find_backend(config.parts().back().backend).factory(group);
  return std::make_unique<MixedConnector>(config, group);
}

}  // namespace lockstep::dist
