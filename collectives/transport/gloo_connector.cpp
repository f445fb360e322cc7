#include "collectives/transport/gloo_connector.h"

#include <fmt/format.h>
#include <gloo/common/error.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "collectives/transport/group_sockets.h"
#include "collectives/transport/interposed.h"
#include "collectives/transport/sigpipe.h"
#include "collectives/transport/thread_sockets.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {

std::shared_ptr<gloo::transport::Device> make_device(bool loopback) {
  // Connections are made at once, not on first use: what a group opened is then known when it is connected.
  constexpr bool kLazy = false;
  if (loopback) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1", kLazy);
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface && *interface)
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface, kLazy);
  return c10d::ProcessGroupGloo::createDefaultDevice(kLazy);
}

/// A device and the address that it listens on, which Gloo does not give out.
struct ListeningDevice {
  std::shared_ptr<gloo::transport::Device> device;
  std::string address;
};

ListeningDevice make_listening_device(bool loopback) {
  ThreadSockets sockets;
  if (loopback) sockets.accept_own_user_only();
  ListeningDevice made{make_device(loopback), ""};
  for (const TcpSocket& socket : sockets.open())
    if (socket.listening) made.address = socket.local;
  return made;
}

std::map<uint64_t, std::string> listening_sockets() {
  std::map<uint64_t, std::string> addresses;
  for (const TcpSocket& socket : open_tcp_sockets())
    if (socket.listening) addresses[socket_cookie(socket.fd)] = socket.local;
  return addresses;
}

/// Does the same without the interposer: takes the one socket that listens afterwards and did not before. Where another
/// thread of the program has opened one as well, a new device is made.
ListeningDevice make_listening_device_by_comparison(bool loopback) {
  constexpr int kAttempts = 20;
  static std::mutex one_at_a_time;  // ranks that are threads of this process
  const std::lock_guard lock(one_at_a_time);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto before = listening_sockets();
    ListeningDevice made{make_device(loopback), ""};
    int opened = 0;
    for (const auto& [cookie, address] : listening_sockets()) {
      if (before.contains(cookie)) continue;
      made.address = address;
      ++opened;
    }
    if (opened == 1) return made;
  }
  throw Error(
      "the socket that Gloo listens on can't be distinguished from those that other threads of this program open. "
      "Link "
      "Lockstep::interpose, or make process groups while no other thread listens on new sockets");
}

class GlooConnector : public BackendConnector {
 public:
  explicit GlooConnector(const GroupDescription& group) : group_(group) {
    const SigpipeBlocked quiet;  // the device's thread is started here
    const ListeningDevice made =
        interposed() ? make_listening_device(group.loopback) : make_listening_device_by_comparison(group.loopback);
    device_ = made.device;
    listener_ = made.address;
  }

  std::string announcement() override { return listener_; }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<std::string>& peers,
                                            std::chrono::milliseconds connect_timeout) override {
    const SigpipeBlocked quiet;  // the group's threads are started here
    auto options = c10d::ProcessGroupGloo::Options::create(connect_timeout);
    options->devices.push_back(device_);
    options->group_name = group_.name;
    for (int rank : group_.ranks) options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, group_.group_rank,
                                                               static_cast<int>(group_.ranks.size()), options);
    backend->setTimeout(group_.timeout);
    std::set<std::string> others(peers.begin(), peers.end());
    others.erase(listener_);
    {
      std::lock_guard lock(mutex_);
      sockets_.hold_connections(listener_, others);
      if (interrupted_) sockets_.shut_down();
      // A port may have changed hands before it was connected to. The interposer checks those that were accepted
      // before; here all are checked in any case.
      if (group_.loopback) sockets_.require_own_peers(fmt::format("a connection of group {}", group_.name));
    }
    // Nobody goes on before all are connected: a rank that is aborted at once would take the others' connecting down.
    c10d::BarrierOptions barrier;
    barrier.timeout = connect_timeout;
    backend->barrier(barrier)->wait();
    return backend;
  }

  bool lost_writes() const noexcept override { return sockets_.lost_writes(); }
  std::vector<int> connections() const override { return sockets_.descriptors(); }

  /// Gloo has one type for a lost connection and for a time limit, and others for what it refuses.
  bool is_transport_error(const std::exception_ptr& error) const noexcept override {
    try {
      std::rethrow_exception(error);
    } catch (const gloo::IoException&) {
      return true;
    } catch (...) {  // an argument, most likely
      return false;
    }
  }

  bool lost_connection() const noexcept override { return sockets_.lost_writes() || sockets_.any_ended(); }

  void interrupt() noexcept override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    sockets_.shut_down();
  }

 private:
  GroupDescription group_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::string listener_;
  std::mutex mutex_;
  HeldSockets sockets_;
  bool interrupted_ = false;
};

}  // namespace

std::unique_ptr<BackendConnector> make_gloo_connector(const GroupDescription& group) {
  return std::make_unique<GlooConnector>(group);
}

}  // namespace lockstep::dist
