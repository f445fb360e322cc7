// Stands in for the plug-in for GPUs, liblockstep_cuda.so, in tests of workers: a device without memory, whose work a
// test lets fail. By environment variables:
//
//   FAKE_DEVICE_FAILS_AT=N  the work of the Nth cell that uses the device fails; cells are counted by finish()
//   FAKE_DEVICE_LOST=1      and the context is lost: the device has failed from then on
//   FAKE_DEVICE_HOLDS=FIFO  finish() returns when somebody opens this for writing
#include <fcntl.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "protocol/device_plugin.h"
#include "protocol/device_state.h"

namespace {

std::atomic<int> finished{0};
std::atomic<bool> is_lost{false};

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

void set_error(lockstep_device_error* error) {
  error->code = is_lost ? 710 : 700;
  std::snprintf(error->name, sizeof error->name, "%s", is_lost ? "cudaErrorAssert" : "cudaErrorIllegalAddress");
  std::snprintf(error->text, sizeof error->text, "%s",
                is_lost ? "device-side assert triggered" : "an illegal memory access was encountered");
  error->lost = is_lost;
}

int work(int) { return is_lost ? LOCKSTEP_DEVICE_FAILED : LOCKSTEP_DEVICE_USED; }

bool finish(int, lockstep_device_error* error) {
  if (const char* fifo = std::getenv("FAKE_DEVICE_HOLDS"))
    if (const int fd = ::open(fifo, O_RDONLY); fd >= 0) ::close(fd);
  if (is_lost || ++finished == number("FAKE_DEVICE_FAILS_AT")) {
    is_lost = is_lost || number("FAKE_DEVICE_LOST") != 0;
    set_error(error);
    return false;
  }
  return true;
}

bool allocator(int, bool, lockstep_allocator_state*) { return false; }
bool bus_id(int index, char* text, size_t size) { return std::snprintf(text, size, "0000:3%X:00.0", index) > 0; }
bool memory(int, uint64_t*, uint64_t*) { return false; }

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const lockstep_device_plugin_v2 lockstep_device_plugin;
const lockstep_device_plugin_v2 lockstep_device_plugin{.abi = lockstep::kDevicePluginAbi,
                                                       .libtorch = TORCH_VERSION,
                                                       .select = [](int) -> const char* { return nullptr; },
                                                       .memory = [](int, uint64_t*, uint64_t*) { return false; },
                                                       .name = [](int) { return "Fake GPU"; },
                                                       .nccl = [](const char** problem) -> const void* {
                                                         *problem = "the fake device has no process groups";
                                                         return nullptr;
                                                       }};
__attribute__((visibility("default"))) extern const lockstep_device_state_v1 lockstep_device_state;
const lockstep_device_state_v1 lockstep_device_state{.abi = lockstep::kDeviceStateAbi,
                                                     .work = work,
                                                     .finish = finish,
                                                     .allocator = allocator,
                                                     .bus_id = bus_id,
                                                     .memory = memory};
}
