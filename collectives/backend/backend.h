// A transport of dist::: what a program implements, and registers by a name, so that process groups can be made on it.
// Gloo is built in; the plug-in for GPUs has "nccl".
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

struct GroupDescription {
  std::string name;
  int group_rank = 0;
  std::vector<int> ranks;  // of the default group
  std::chrono::milliseconds timeout{};  // of each collective
  bool loopback = true;  // all ranks are on this machine: nothing may listen on other interfaces than the loopback one
};

/// The connections of one group, for one generation of the group: announced to the peers, connected, and shut down from
/// any thread when a rank is stuck.
class BackendConnector {
 public:
  virtual ~BackendConnector() = default;

  /// What the peers need to know before they connect: an address, for example. Called once, before connect().
  virtual std::string announcement() = 0;

  /// Collective over the group. `peers`: the announcements by group rank. Throws what the transport throws.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::vector<std::string>& peers,
                                                    std::chrono::milliseconds connect_timeout) = 0;

  /// Makes every wait in the backend throw, here and at the peers. Waits of streams on a device end, with results that
  /// mean nothing. From any thread, returns at once, may be called twice.
  virtual void interrupt() noexcept = 0;

  /// Ends connections that nobody has interrupted, when all operations of this rank are done; may wait for peers that
  /// are still at theirs. Called once, before the last reference to the backend goes.
  virtual void close() {}

  /// Descriptors of the connections to peers, which hang up when a peer leaves; valid as long as the connector.
  virtual std::vector<int> connections() const { return {}; }
  /// `callback` is called, by a thread of the connector, when a connection to a peer has ended. Set before connect().
  virtual void on_connection_end(std::function<void()> callback) { static_cast<void>(callback); }

  /// Whether something was sent into a closed connection and counted as sent: an operation that the backend reports as
  /// done may not be.
  virtual bool lost_writes() const noexcept { return false; }

  // The type of the backend's exception and the state of the connections say what the exception means; its text is not
  // read. From any thread.
  /// Whether `error` comes from sending, receiving or waiting for a peer. If not, the backend rejects its arguments. By
  /// default: whether it is c10d's DistError, as what NCCL reports.
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

/// From now on `name` can be given as the backend of init_process_group and new_group. `device`: the type of the
/// tensors that it takes. `factory` is called once for each group and generation. Local, from any thread; a name that
/// is registered already is replaced.
void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory);

}  // namespace lockstep::dist
