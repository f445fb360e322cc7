// A device that CI has everywhere, as LibTorch's PrivateUse1 backend "fake": its memory is host memory, and a stream is
// a queue that a thread of its own serves in order. It stands in for a GPU in tests of what depends on streams: which
// work waits for which, what the host waits for, and how long memory stays in use.
//
//   at::Tensor t = torch::ones({4}, fake::device(1));   // queued, as on a GPU
//   fake::Scope scope({.schedule = fake::Schedule::late, .poison = true});
//
// A wait that is missing has to show in every run. Three things make it show, in order of strength: the late schedule,
// under which a stream runs nothing before somebody waits for it; a Hold, which keeps one stream from going on; and
// delays, after which other streams are ahead in practice.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace lockstep::fake {

inline constexpr int kDevices = 4;

/// "fake:INDEX".
c10::Device device(int index);
/// Of the calling thread, on `device`.
c10::Stream current_stream(int device);

/// Moves parameters and buffers there. Module::to() refuses: LibTorch lets tensors change between devices of its own
/// list only. Before the first backward.
void move_to(torch::nn::Module& module, c10::Device device);

enum class Schedule {
  eager,  // a stream runs what is queued as soon as it can
  late,  // it runs only what the host waits for, directly or through another stream's wait
};

struct Options {
  Schedule schedule = Schedule::eager;
  /// Memory that is freed is overwritten with NaN as soon as the streams that it was recorded for allow it, and new
  /// memory begins as NaN.
  bool poison = false;
  /// Before each operation whose name is the key: "mm.out", "copy", "fingerprint". "*": before all others.
  std::map<std::string, std::chrono::microseconds> delays;
};

/// Sets the options for all devices while it lives, and waits for all devices at both ends. One at a time.
class Scope {
 public:
  explicit Scope(Options options);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// Keeps a stream from running what is queued after it, until release() or the end of its life.
class Hold {
 public:
  explicit Hold(c10::Stream stream);
  ~Hold() { release(); }
  Hold(Hold&&) = default;
  Hold& operator=(Hold&&) = delete;
  void release();

 private:
  struct Gate;
  std::shared_ptr<Gate> gate_;
};

/// How often threads of the program have waited for the device so far: for a stream, an event, a device, or the end of
/// a copy. Queued waits of one stream for another do not count, nor do waits for an event that is already reached.
int64_t host_waits();

/// Waits for all streams of all devices. Throws the first exception that an operation ended with since the last call.
void synchronize();

/// Whether inspectors find functions for tensors of this device (inspectors/device/functions.h). They are the bodies of
/// the kernels for GPUs, run as a grid on the thread of the stream. Off at first.
void use_device_functions(bool on);
/// How often fingerprint() and first_bad() of the device functions were queued so far.
int64_t fingerprints_queued();
int64_t sentinels_queued();

}  // namespace lockstep::fake
