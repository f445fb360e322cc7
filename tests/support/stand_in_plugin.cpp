// A plug-in that stands in for liblockstep_cuda.so in tests of workers (LOCKSTEP_PLUGIN names it): a GPU without memory
// that is chosen without asking a driver, whose work a test lets fail, and whose groups on NCCL are stand-ins. By
// environment variables:
//
//   STAND_IN_FAILS_AT=N      the work of the Nth cell that uses the device fails; cells are counted by finish()
//   STAND_IN_LOST=1          and the context is lost: the device has failed from then on
//   STAND_IN_HOLDS=FIFO      finish() returns when somebody opens this for writing
//   STAND_IN_WITHOUT_NCCL=1  there are no groups on NCCL
#include <fcntl.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "protocol/device_plugin.h"
#include "protocol/device_state.h"
#include "tests/support/stand_in_backend.h"

namespace {

using lockstep::testing::StandIn;
using lockstep::testing::StandInConnector;

std::atomic<int> finished{0};
std::atomic<bool> is_lost{false};

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

const char* select(int index) { return index == 0 ? nullptr : "the stand-in has GPU 0 only"; }
bool memory(int, uint64_t*, uint64_t*) { return false; }
const char* name(int) { return "Stand-in"; }

const void* nccl(const char** problem) {
  if (number("STAND_IN_WITHOUT_NCCL")) {
    *problem = "the stand-in was asked to have none";
    return nullptr;
  }
  static const lockstep::dist::BackendFactory factory = [](const lockstep::dist::GroupDescription& group) {
    return std::make_unique<StandInConnector>(group, std::make_shared<StandIn>());
  };
  return &factory;
}

bool captures(int) { return false; }
void query(void (*question)(void*), void* argument) { question(argument); }

void set_error(lockstep_device_error* error) {
  error->code = is_lost ? 710 : 700;
  std::snprintf(error->name, sizeof error->name, "%s", is_lost ? "cudaErrorAssert" : "cudaErrorIllegalAddress");
  std::snprintf(error->text, sizeof error->text, "%s",
                is_lost ? "device-side assert triggered" : "an illegal memory access was encountered");
  error->lost = is_lost;
}

int work(int) { return is_lost ? LOCKSTEP_DEVICE_FAILED : LOCKSTEP_DEVICE_USED; }

bool finish(int, lockstep_device_error* error) {
  if (const char* fifo = std::getenv("STAND_IN_HOLDS"))
    if (const int fd = ::open(fifo, O_RDONLY); fd >= 0) ::close(fd);
  if (is_lost || ++finished == number("STAND_IN_FAILS_AT")) {
    is_lost = is_lost || number("STAND_IN_LOST") != 0;
    set_error(error);
    return false;
  }
  return true;
}

bool allocator(int, bool, lockstep_allocator_state*) { return false; }
bool bus_id(int index, char* text, size_t size) { return std::snprintf(text, size, "0000:3%X:00.0", index) > 0; }

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const lockstep_device_plugin_v3 lockstep_device_plugin;
const lockstep_device_plugin_v3 lockstep_device_plugin{.abi = lockstep::kDevicePluginAbi,
                                                       .libtorch = TORCH_VERSION,
                                                       .select = select,
                                                       .memory = memory,
                                                       .name = name,
                                                       .nccl = nccl,
                                                       .captures = captures,
                                                       .query = query};
__attribute__((visibility("default"))) extern const lockstep_device_state_v1 lockstep_device_state;
const lockstep_device_state_v1 lockstep_device_state{.abi = lockstep::kDeviceStateAbi,
                                                     .work = work,
                                                     .finish = finish,
                                                     .allocator = allocator,
                                                     .bus_id = bus_id,
                                                     .memory = memory};
}
