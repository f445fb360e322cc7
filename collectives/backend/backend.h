// A backend is a transport of dist::. A program implements it and registers it by a name, and process groups are then
// made on it. Gloo is built in; the plug-in for GPUs has "nccl".
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace lockstep::dist {

namespace log_layout {
struct Group;
}

struct GroupDescription {
  std::string name;
  int group_rank = 0;
  std::vector<int> ranks;  // of the default group
  std::chrono::milliseconds timeout{};  // of each collective
  bool loopback = true;  // all ranks are on this machine: nothing may listen on other interfaces than the loopback one
  // This group in the rank's log, where a backend whose ranks share memory says for whom the rank sleeps. May be null.
  std::shared_ptr<log_layout::Group> log = nullptr;
};

/// Holds the connections of one group for one generation of the group. They are announced to the peers, connected, and
/// shut down from any thread when a rank is stuck.
class BackendConnector {
 public:
  virtual ~BackendConnector() = default;

  /// Returns what the peers need to know before they connect, such as an address. Called once, before connect().
  virtual std::string announcement() = 0;

  /// Collective over the group. `peers` has the announcements by group rank. Throws what the transport throws.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::vector<std::string>& peers,
                                                    std::chrono::milliseconds connect_timeout) = 0;

  /// Makes every wait in the backend throw, here and at the peers. Waits of streams on a device end, and their results
  /// mean nothing. Returns at once. From any thread; may be called twice.
  virtual void interrupt() noexcept = 0;

  /// Ends connections that nobody has interrupted, when all operations of this rank are done. May wait for peers that
  /// are not done. Called once, before the last reference to the backend goes.
  virtual void close() {}

  /// Returns the descriptors of the connections to peers. They hang up when a peer leaves, and live as long as this.
  virtual std::vector<int> connections() const { return {}; }
  /// Sets what a thread of the connector calls when a connection to a peer has ended. Called before connect().
  virtual void on_connection_end(std::function<void()> callback) { static_cast<void>(callback); }

  /// Whether a write into a closed connection was counted as sent. An operation that the backend reports as done may
  /// then not be done.
  virtual bool lost_writes() const noexcept { return false; }

  // What an exception means follows from its type and from the state of the connections, not from its text. From any
  // thread.
  /// Whether `error` comes from sending, receiving or waiting for a peer. If not, the backend rejects its arguments.
  /// The default is whether it is c10d's DistError, which NCCL's errors are.
  virtual bool is_transport_error(const std::exception_ptr& error) const noexcept {
    try {
      std::rethrow_exception(error);
    } catch (const c10::DistError&) {
      return true;
    } catch (...) {  // an argument, most likely
      return false;
    }
  }
  /// Whether a connection to a peer has ended, by either side.
  virtual bool lost_connection() const noexcept = 0;
};

using BackendFactory = std::function<std::unique_ptr<BackendConnector>(const GroupDescription&)>;

/// Lets init_process_group and new_group take `name` as a backend from now on. `device` is the type of the tensors that
/// it takes. `factory` is called once for each group and generation. A name that is registered already is replaced.
/// Local, from any thread.
void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory);

}  // namespace lockstep::dist
