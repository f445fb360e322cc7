// Knows how far collectives on a device are: enqueued, waiting for their stream, started, done. A device is asked,
// never waited for, and only on demand: an event is recorded on the caller's stream before the collective, and queried
// later. No LibTorch: what it asks are functions, so that a test can stand in for a device.
//
// Asking can block all the same, for a driver has locks of its own. So a thread asks. The first look() starts it, and
// look() waits for it with a limit. Programs whose collectives run on the host never have that thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace lockstep::dist {

class LogMapping;

enum class StreamEnd { none, done, failed };

/// These functions are called on any thread, sometimes on two at once, and must not wait for the device. What they
/// throw ends the collective as failed: the device does not work any more.
struct DeviceCall {
  std::function<bool()> reached;  // the caller's stream has come to the collective; empty: unknown until it is done
  std::function<StreamEnd()> end;  // whether the device is done with it; empty: somebody else ends the entry in the log
};

/// Sets what calls `ask`, which asks a device how far collectives are, in a state of the thread in which that disturbs
/// nobody: on CUDA, where another thread may be capturing a graph, in the relaxed capture mode. The plug-in for a
/// device sets it; null removes it. From any thread.
void set_device_query_guard(void (*guard)(const std::function<void()>& ask));
/// Calls `ask` by way of that guard, or directly where there is none.
void ask_devices(const std::function<void()>& ask);

class DeviceProgress {
 public:
  /// Collectives with the same order run in the order of their calls: those of a group, or messages between two ranks.
  using Order = std::pair<uint32_t, int>;  // slot of the group, peer (-1: all ranks)

  explicit DeviceProgress(const LogMapping& log);
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;

  /// `entry` has kOnDevice and was issued just now. Also asks the oldest collectives in flight, so that they do not
  /// pile up in a program in which nobody looks.
  void add(uint64_t entry, Order order, DeviceCall call);
  /// Sets what tells the end of `entry` from now on. Does nothing for an entry that is not in flight any more.
  void set_end(uint64_t entry, std::function<StreamEnd()> end);
  /// Asks about all collectives in flight and writes the answers into the log. Returns false if the answers have not
  /// come within `limit`: the log then has those of an earlier look. From any thread.
  bool look(std::chrono::milliseconds limit = std::chrono::milliseconds(50));
  size_t in_flight() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too: it can be stuck in the driver when this object ends
};

}  // namespace lockstep::dist
