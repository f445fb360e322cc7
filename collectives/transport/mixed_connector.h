// Makes groups with a transport for tensors on a device, and Gloo beside it. Gloo takes the CPU tensors where the group
// has a backend for those. Its connections always tell each rank when a peer leaves the group, which NCCL does not: a
// kernel that waits for a peer on the same machine never ends.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "collectives/backend/backend.h"
#include "collectives/transport/backend_config.h"

namespace lockstep::dist {

/// Holds the backends of one group, by the name of their part. Has no collectives itself.
class MixedBackend : public c10d::Backend {
 public:
  struct Part {
    std::string backend;
    c10::intrusive_ptr<c10d::Backend> transport;
  };
  MixedBackend(int rank, int size, std::vector<Part> parts) : c10d::Backend(rank, size), parts_(std::move(parts)) {}

  const std::vector<Part>& parts() const { return parts_; }
  const std::string getBackendName() const override { return "mixed"; }

 private:
  const std::vector<Part> parts_;
};

/// Returns the part of that name of `transport`, or `transport` itself where it has no parts.
c10d::Backend& backend_of_part(c10d::Backend& transport, const std::string& backend);

/// Makes a connector of each part of `config` for one group and generation.
std::unique_ptr<BackendConnector> make_connector(const BackendConfig& config, const GroupDescription& group);

}  // namespace lockstep::dist
