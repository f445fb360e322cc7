// Reads the GPUs of this machine as the driver's NVML reports them: memory of all processes, load, temperature, errors,
// why clocks are held down. It needs no LibTorch and CUDA; libnvidia-ml.so.1 is loaded at run time.
//
// A call of NVML can block in the driver when a GPU is lost, and a thread that is stuck there keeps its process from
// ending. Each GPU is therefore asked on a thread of its own, and who needs an answer in time waits with a deadline:
// look() does, and the shell asks in a process of its own (`lockstep gpus`, shell/processes/gpu_lookup.h).
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::gpus {

struct GpuProcess {
  int64_t pid = 0;  // as the driver counts processes: within a container it may be another number than here
  std::string name;  // of /proc/PID/comm; empty where there is no such process here
  std::optional<int64_t> bytes;  // of the GPU's memory; unset where the driver does not say

  bool operator==(const GpuProcess&) const = default;
};

/// What a GPU does not support, and what this user may not read, is unset.
struct Gpu {
  int index = 0;  // NVML's: in the order of PCI addresses
  std::string problem;  // why nothing else is known: "NVML does not answer", "GPU is lost"; else empty
  std::string name, uuid;
  std::string bus_id;  // "0000:3b:00.0": by this a rank's device is found, whatever CUDA_VISIBLE_DEVICES says
  std::string capability;  // "9.0"
  std::optional<int64_t> total_bytes, used_bytes;  // used by all processes and the driver
  std::optional<int> gpu_percent,
      memory_percent;  // of the time of the last sample in which a kernel ran, memory was busy
  std::optional<int> temperature;  // °C
  std::optional<bool> ecc, persistence, mig;
  std::optional<int64_t> corrected_errors, uncorrected_errors;  // of ECC, since the driver was loaded
  std::optional<std::vector<std::string>> slowed_by;  // why clocks are below what they could be; empty: by nothing
  std::vector<GpuProcess> processes;  // that have a CUDA context on it
  std::vector<int> peers;  // GPUs whose memory it can read directly

  bool operator==(const Gpu&) const = default;
};

struct Machine {
  std::string problem;  // why there are no GPUs: no driver, or NVML does not start
  std::string driver;  // "580.65.06"
  int cuda = 0;  // newest CUDA that the driver supports: 13000 for 13.0
  std::vector<Gpu> gpus;  // by index

  bool operator==(const Machine&) const = default;
};

void to_json(nlohmann::json& json, const GpuProcess& process);
void from_json(const nlohmann::json& json, GpuProcess& process);
void to_json(nlohmann::json& json, const Gpu& gpu);
void from_json(const nlohmann::json& json, Gpu& gpu);

/// Returns a PCI address in one spelling: "0000:3b:00.0". NVML writes "00000000:3B:00.0", CUDA "0000:3B:00.0". Other
/// texts stay as they are.
std::string normal_bus_id(const std::string& text);

/// Asks NVML and returns what it has answered within `limit`. A GPU that has not answered by then is in the list, with
/// its problem; its thread is left to itself. From any thread.
Machine look(std::chrono::milliseconds limit);

/// Writes the same in lines of JSON, each as soon as it is known: first {"driver","cuda","count"} or {"problem"}, then
/// a line for each GPU. Returns when all have answered, which may be never: the caller is a process that can be left.
void write_lines(const std::function<void(const std::string& line)>& write);
/// Reads such lines. A GPU whose line is missing has the problem that NVML does not answer.
class Lines {
 public:
  /// Takes a complete line, without its end. Damaged ones are passed over.
  void take(const std::string& line);
  /// Whether nothing more is to come.
  bool complete() const { return begun_ && answered_ == machine_.gpus.size(); }
  Machine machine() const;

 private:
  Machine machine_;
  bool begun_ = false;
  size_t answered_ = 0;
};

/// Sets where NVML is looked for, for tests. The default is "libnvidia-ml.so.1".
void set_library(const std::string& name);

}  // namespace lockstep::gpus
