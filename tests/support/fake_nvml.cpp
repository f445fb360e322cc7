// Stands in for libnvidia-ml.so.1 in tests, by the same loader. FAKE_NVML says how the machine is, in JSON:
//
//   {"init": 9, "driver": "580.65.06", "cuda": 13000, "gpus": [{"name": …, "used": …, "lost": 15, "blocks": true}, …]}
//
// `init`: the error of nvmlInit. Of a GPU: `lost`: the error of every call about it; `blocks`: calls about it never
// return, as for a GPU that the driver waits for; `absent`: names of fields that it does not support. Without FAKE_NVML
// no GPU is there.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inspectors/gpus/nvml_api.h"

namespace {

using nlohmann::json;
using namespace lockstep::gpus::nvml;

/// As the variable says now, so that tests of one process can have machines of their own.
json machine() {
  const char* text = std::getenv("FAKE_NVML");
  return text ? json::parse(text) : json{{"gpus", json::array()}};
}

Device device_of(unsigned index) { return reinterpret_cast<Device>(static_cast<uintptr_t>(index) + 1); }
json gpu_of(Device device) { return machine().at("gpus").at(reinterpret_cast<uintptr_t>(device) - 1); }

/// Gives a field of the GPU to `take`, unless the GPU is lost, blocks, or does not have it.
template <typename Take>
Return with(Device device, const char* field, const Take& take) {
  const json gpu = gpu_of(device);
  while (gpu.value("blocks", false)) ::pause();
  if (gpu.contains("lost")) return gpu.at("lost");
  if (!gpu.contains(field)) return kNotSupported;
  return take(gpu.at(field));
}

Return text(Device device, const char* field, char* into, unsigned length) {
  return with(device, field, [&](const json& value) {
    std::snprintf(into, length, "%s", value.get_ref<const std::string&>().c_str());
    return kSuccess;
  });
}

template <typename Number>
Return number(Device device, const char* field, Number* into) {
  return with(device, field, [&](const json& value) {
    *into = value.get<Number>();
    return kSuccess;
  });
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) Return nvmlInit_v2() {
  while (machine().value("init_blocks", false)) ::pause();
  return machine().value("init", 0);
}
__attribute__((visibility("default"))) const char* nvmlErrorString(Return error) {
  return error == 9 ? "Driver Not Loaded" : error == kGpuIsLost ? "GPU is lost" : "Unknown Error";
}
__attribute__((visibility("default"))) Return nvmlSystemGetDriverVersion(char* into, unsigned length) {
  std::snprintf(into, length, "%s", machine().value("driver", "580.65.06").c_str());
  return kSuccess;
}
__attribute__((visibility("default"))) Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = machine().value("cuda", 13000);
  return kSuccess;
}
__attribute__((visibility("default"))) Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine().at("gpus").size());
  return kSuccess;
}
__attribute__((visibility("default"))) Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = device_of(index);
  return kSuccess;
}
__attribute__((visibility("default"))) Return nvmlDeviceGetName(Device device, char* into, unsigned length) {
  return text(device, "name", into, length);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetUUID(Device device, char* into, unsigned length) {
  return text(device, "uuid", into, length);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  return text(device, "bus_id", info->bus_id, sizeof info->bus_id);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  return with(device, "used", [&](const json& used) {
    memory->total = gpu_of(device).at("total");
    memory->used = used;
    memory->free = memory->total - memory->used;
    return kSuccess;
  });
}
__attribute__((visibility("default"))) Return nvmlDeviceGetUtilizationRates(Device device, Utilization* load) {
  return with(device, "load", [&](const json& value) {
    *load = {value.at(0), value.at(1)};
    return kSuccess;
  });
}
__attribute__((visibility("default"))) Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned* celsius) {
  return sensor == kTemperatureGpu ? number(device, "temperature", celsius) : 2;
}
__attribute__((visibility("default"))) Return nvmlDeviceGetEccMode(Device device, int* current, int* pending) {
  *pending = 0;
  return number(device, "ecc", current);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetTotalEccErrors(Device device, int type, int counter,
                                                                          unsigned long long* count) {
  return counter == kVolatile ? number(device, type == kCorrected ? "corrected" : "uncorrected", count) : 2;
}
// As drivers before 535 have it.
__attribute__((visibility("default"))) Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device,
                                                                                        unsigned long long* reasons) {
  return number(device, "clock_reasons", reasons);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetPersistenceMode(Device device, int* on) {
  return number(device, "persistence", on);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetMigMode(Device device, unsigned* current,
                                                                   unsigned* pending) {
  *pending = 0;
  return number(device, "mig", current);
}
__attribute__((visibility("default"))) Return nvmlDeviceGetCudaComputeCapability(Device device, int* major,
                                                                                 int* minor) {
  return with(device, "capability", [&](const json& value) {
    *major = value.at(0);
    *minor = value.at(1);
    return kSuccess;
  });
}
__attribute__((visibility("default"))) Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count,
                                                                                      ProcessInfo* list) {
  return with(device, "processes", [&](const json& processes) -> Return {
    const auto room = *count;
    *count = static_cast<unsigned>(processes.size());
    if (room < *count) return kInsufficientSize;
    for (unsigned i = 0; i < *count; ++i) {
      const json& bytes = processes.at(i).at(1);
      list[i] = {processes.at(i).at(0), bytes.is_null() ? kNotAvailable : bytes.get<unsigned long long>(), ~0U, ~0U};
    }
    return kSuccess;
  });
}
__attribute__((visibility("default"))) Return nvmlDeviceGetP2PStatus(Device device, Device, int what, int* status) {
  return what == kPeerRead ? number(device, "peer", status) : 2;
}
}
