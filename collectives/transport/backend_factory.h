// Where the transports come from: a factory per backend name. Gloo is built in; "nccl" is registered by the CUDA plug-in when
// it is loaded.
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
  std::chrono::milliseconds timeout{};
  bool loopback = true;  // all ranks are on this machine: nothing may listen elsewhere
};

/// One group's connections, for one generation of the group: made, announced to the peers, connected, and shut down from any
/// thread when a rank is stuck.
class BackendConnector {
 public:
  virtual ~BackendConnector() = default;

  /// What the peers need to know beforehand (an address, say). Called once, first.
  virtual std::string announcement() = 0;

  /// Collective over the group. `peers`: the announcements by group rank. Throws what the transport throws.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::vector<std::string>& peers,
                                                    std::chrono::milliseconds connect_timeout) = 0;

  /// Makes every wait in the backend throw, here and at the peers. From any thread, returns at once, may be called twice.
  virtual void interrupt() noexcept = 0;

  /// Whether something was sent into a closed connection and counted as sent: what the backend calls done may not be.
  virtual bool lost_writes() const noexcept { return false; }

  // What an exception of the backend means is said by its type and by the connections, never by its text. From any thread.
  /// Whether `error` comes of sending, receiving or waiting for a peer; otherwise the backend refuses what it was given.
  virtual bool is_transport_error(const std::exception_ptr& error) const noexcept = 0;
  /// Whether a connection to a peer has ended, by either side.
  virtual bool lost_connection() const noexcept = 0;
};

using BackendFactory = std::function<std::unique_ptr<BackendConnector>(const GroupDescription&)>;

/// `device`: whose tensors it takes.
void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory);

struct BackendEntry {
  c10::DeviceType device = c10::DeviceType::CPU;
  BackendFactory factory;
};
/// Throws ArgumentError for a name that nobody registered, saying what would.
const BackendEntry& find_backend(const std::string& name);
bool has_backend(const std::string& name);

}  // namespace lockstep::dist
