// A plug-in that stands in for liblockstep_cuda.so (LOCKSTEP_PLUGIN names it): GPUs are chosen without asking a driver,
// and groups on NCCL are stand-ins. For the way from the environment of a worker to its groups.
#include <torch/headeronly/version.h>

#include "protocol/device_plugin.h"
#include "tests/support/stand_in_backend.h"

namespace {

using lockstep::testing::StandIn;
using lockstep::testing::StandInConnector;

const char* select(int index) { return index == 0 ? nullptr : "the stand-in has GPU 0 only"; }

bool memory(int, uint64_t* used, uint64_t* total) {
  *used = 1 << 20;
  *total = 1 << 30;
  return true;
}

const char* name(int) { return "Stand-in"; }

const void* nccl(const char** problem) {
  if (std::getenv("STAND_IN_WITHOUT_NCCL")) {
    *problem = "the stand-in was asked to have none";
    return nullptr;
  }
  static const lockstep::dist::BackendFactory factory = [](const lockstep::dist::GroupDescription& group) {
    return std::make_unique<StandInConnector>(group, std::make_shared<StandIn>());
  };
  return &factory;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const lockstep_device_plugin_v2 lockstep_device_plugin;
const lockstep_device_plugin_v2 lockstep_device_plugin{.abi = lockstep::kDevicePluginAbi,
                                                       .libtorch = TORCH_VERSION,
                                                       .select = select,
                                                       .memory = memory,
                                                       .name = name,
                                                       .nccl = nccl};
}
