// Says which backend takes the tensors of which device: one name ("gloo", "nccl"), or one for each device as
// torch.distributed writes it: "cpu:gloo,cuda:nccl".
#pragma once
#include <c10/core/DeviceType.h>

#include <string>
#include <vector>

namespace lockstep::dist {

class BackendConfig {
 public:
  struct Part {
    std::string backend;
    c10::DeviceType device;  // whose tensors the backend takes

    /// Whether it has Gloo's collectives and takes what Gloo takes: Gloo itself, also for tensors of a device, whose
    /// values go through host memory, and shared memory.
    bool works_as_gloo() const;
    bool shares_memory() const;
  };

  BackendConfig() = default;
  /// Throws ArgumentError for another form, a name that is not registered, a device that stands twice, or one whose
  /// tensors the backend does not take. Gloo may be named for any device, and "gloo" alone stands for all devices of
  /// this process: tensors of others than the CPU go through host memory (staged_backend.h).
  // NOLINTBEGIN(google-explicit-constructor): a text is one, as for torch.distributed
  BackendConfig(std::string text);
  BackendConfig(const char* text) : BackendConfig(std::string(text)) {}
  // NOLINTEND(google-explicit-constructor)

  const std::string& str() const { return text_; }
  /// Returns "cpu:gloo,cuda:nccl", in this form also for one name.
  std::string by_device() const;
  const std::vector<Part>& parts() const { return parts_; }
  /// Returns the part that takes tensors on `device`; null where none does.
  const Part* part_for(c10::DeviceType device) const;
  /// Returns the part for a device that is not the CPU; null where there is none.
  const Part* device_part() const;

 private:
  std::string text_;
  std::vector<Part> parts_;  // the CPU's first
};

}  // namespace lockstep::dist
