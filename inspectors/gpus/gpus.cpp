#include "inspectors/gpus/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "inspectors/gpus/nvml_api.h"
#include "protocol/json_fields.h"

namespace lockstep::gpus {
namespace {

using nlohmann::json;

constexpr const char* kNoAnswer = "NVML does not answer; the GPU may be lost (dmesg has the driver's messages)";

std::string& library_name() {
  // Not destroyed: a thread that is stuck in the driver outlasts main().
  static auto* name = new std::string("libnvidia-ml.so.1");
  return *name;
}

/// Holds NVML of this process, and what came of starting it.
struct Nvml {
  nvml::Api api;
  std::string problem, driver;
  int cuda = 0;
  unsigned count = 0;
};

std::string words_of(const nvml::Api& api, nvml::Return error) {
  const char* text = api.error_string ? api.error_string(error) : nullptr;
  return text ? text : "error " + std::to_string(error);
}

template <typename Function>
void find(void* library, Function& function, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if ((function = reinterpret_cast<Function>(::dlsym(library, name)))) return;
}

/// Loads the library once and starts NVML. May block in the driver.
Nvml start_nvml() {
  Nvml started;
  nvml::Api& api = started.api;
  void* library = ::dlopen(library_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* text = ::dlerror();
    started.problem = text ? text : library_name() + " can't be loaded";
    return started;
  }
  find(library, api.init, {"nvmlInit_v2"});
  find(library, api.error_string, {"nvmlErrorString"});
  find(library, api.driver_version, {"nvmlSystemGetDriverVersion"});
  find(library, api.cuda_version, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  find(library, api.count, {"nvmlDeviceGetCount_v2"});
  find(library, api.handle, {"nvmlDeviceGetHandleByIndex_v2"});
  find(library, api.name, {"nvmlDeviceGetName"});
  find(library, api.uuid, {"nvmlDeviceGetUUID"});
  find(library, api.pci_info, {"nvmlDeviceGetPciInfo_v3"});
  find(library, api.memory, {"nvmlDeviceGetMemoryInfo"});
  find(library, api.utilization, {"nvmlDeviceGetUtilizationRates"});
  find(library, api.temperature, {"nvmlDeviceGetTemperature"});
  find(library, api.ecc_mode, {"nvmlDeviceGetEccMode"});
  find(library, api.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
  find(library, api.clock_reasons,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  find(library, api.persistence, {"nvmlDeviceGetPersistenceMode"});
  find(library, api.mig_mode, {"nvmlDeviceGetMigMode"});
  find(library, api.capability, {"nvmlDeviceGetCudaComputeCapability"});
  find(library, api.processes, {"nvmlDeviceGetComputeRunningProcesses_v3"});
  find(library, api.peer_status, {"nvmlDeviceGetP2PStatus"});
  if (!api.init || !api.count || !api.handle) {
    started.problem = library_name() + " lacks functions that drivers from 470 on have: install a newer driver";
    return started;
  }
  // Never shut down: a thread may still be in a call, and the process ends soon or goes on asking.
  if (const nvml::Return error = api.init(); error != nvml::kSuccess) {
    started.problem = "NVML does not start: " + words_of(api, error);
    return started;
  }
  char version[80] = {};
  if (api.driver_version && api.driver_version(version, sizeof version) == nvml::kSuccess) started.driver = version;
  if (!api.cuda_version || api.cuda_version(&started.cuda) != nvml::kSuccess) started.cuda = 0;
  if (const nvml::Return error = api.count(&started.count); error != nvml::kSuccess)
    started.problem = "NVML does not say how many GPUs there are: " + words_of(api, error);
  return started;
}

std::vector<GpuProcess> processes_of(const nvml::Api& api, nvml::Device device) {
  std::vector<GpuProcess> result;
  if (!api.processes) return result;
  std::vector<nvml::ProcessInfo> list(16);
  unsigned count = 0;
  nvml::Return error = nvml::kInsufficientSize;
  // Processes start meanwhile, so the list may grow again.
  for (int attempt = 0; error == nvml::kInsufficientSize && attempt < 5; ++attempt) {
    if (attempt > 0) list.resize(std::max<size_t>(2 * list.size(), count + 8));
    count = static_cast<unsigned>(list.size());
    error = api.processes(device, &count, list.data());
  }
  if (error != nvml::kSuccess) return result;
  for (size_t i = 0; i < std::min<size_t>(count, list.size()); ++i) {
    GpuProcess process{.pid = static_cast<int64_t>(list[i].pid), .name = {}, .bytes = {}};
    if (list[i].used_gpu_memory != nvml::kNotAvailable) process.bytes = static_cast<int64_t>(list[i].used_gpu_memory);
    std::ifstream name("/proc/" + std::to_string(process.pid) + "/comm");
    std::getline(name, process.name);
    result.push_back(std::move(process));
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return result;
}

/// Makes all calls about one GPU. May block in the driver.
Gpu ask(const Nvml& nvml, unsigned index) {
  const nvml::Api& api = nvml.api;
  Gpu gpu;
  gpu.index = static_cast<int>(index);
  nvml::Device device = nullptr;
  nvml::Return error = api.handle(index, &device);
  // The first call that a lost GPU fails says so for all of them.
  nvml::Memory memory = {};
  if (error == nvml::kSuccess && api.memory) error = api.memory(device, &memory);
  if (error != nvml::kSuccess && error != nvml::kNotSupported) {
    gpu.problem = words_of(api, error);
    if (error == nvml::kGpuIsLost) gpu.problem += ": it has fallen off the bus; the machine has to be restarted";
    return gpu;
  }
  if (error == nvml::kSuccess && api.memory) {
    gpu.total_bytes = static_cast<int64_t>(memory.total);
    gpu.used_bytes = static_cast<int64_t>(memory.used);
  }
  const auto known = [](auto function, auto&&... arguments) {
    return function && function(arguments...) == nvml::kSuccess;
  };
  char text[96] = {};
  if (known(api.name, device, text, static_cast<unsigned>(sizeof text))) gpu.name = text;
  if (known(api.uuid, device, text, static_cast<unsigned>(sizeof text))) gpu.uuid = text;
  if (nvml::PciInfo pci = {}; known(api.pci_info, device, &pci)) gpu.bus_id = normal_bus_id(pci.bus_id);
  if (int major = 0, minor = 0; known(api.capability, device, &major, &minor))
    gpu.capability = std::to_string(major) + "." + std::to_string(minor);
  if (nvml::Utilization load = {}; known(api.utilization, device, &load)) {
    gpu.gpu_percent = static_cast<int>(load.gpu);
    gpu.memory_percent = static_cast<int>(load.memory);
  }
  if (unsigned celsius = 0; known(api.temperature, device, nvml::kTemperatureGpu, &celsius))
    gpu.temperature = static_cast<int>(celsius);
  if (int current = 0, pending = 0; known(api.ecc_mode, device, &current, &pending)) gpu.ecc = current != 0;
  unsigned long long errors = 0;
  if (known(api.ecc_errors, device, nvml::kCorrected, nvml::kVolatile, &errors))
    gpu.corrected_errors = static_cast<int64_t>(errors);
  if (known(api.ecc_errors, device, nvml::kUncorrected, nvml::kVolatile, &errors))
    gpu.uncorrected_errors = static_cast<int64_t>(errors);
  if (unsigned long long reasons = 0; known(api.clock_reasons, device, &reasons)) {
    gpu.slowed_by.emplace();
    for (const nvml::ClockReason& reason : nvml::kClockReasons)
      if ((reasons & reason.bit) != 0) gpu.slowed_by->emplace_back(reason.words);
  }
  if (int on = 0; known(api.persistence, device, &on)) gpu.persistence = on != 0;
  if (unsigned current = 0, pending = 0; known(api.mig_mode, device, &current, &pending)) gpu.mig = current != 0;
  gpu.processes = processes_of(api, device);
  for (unsigned other = 0; other < nvml.count; ++other) {
    nvml::Device peer = nullptr;
    int status = -1;
    if (other != index && api.handle(other, &peer) == nvml::kSuccess &&
        known(api.peer_status, device, peer, nvml::kPeerRead, &status) && status == nvml::kPeerOk)
      gpu.peers.push_back(static_cast<int>(other));
  }
  return gpu;
}

/// Has all fields in JSON but the problem, which is null where there is none.
struct GpuFacts : Gpu {};
LOCKSTEP_JSON(GpuFacts, index, name, uuid, bus_id, capability, total_bytes, used_bytes, gpu_percent, memory_percent,
              temperature, ecc, persistence, mig, corrected_errors, uncorrected_errors, slowed_by, processes, peers)

/// The driver's texts may be no UTF-8.
std::string line_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

void set_library(const std::string& name) { library_name() = name; }

LOCKSTEP_DECLARED_JSON(GpuProcess, pid, name, bytes)

void to_json(json& value, const Gpu& gpu) {
  value = GpuFacts{gpu};
  value["problem"] = gpu.problem.empty() ? json() : json(gpu.problem);
}

void from_json(const json& value, Gpu& gpu) {
  gpu = value.get<GpuFacts>();
  if (const auto& problem = value.at("problem"); problem.is_string()) gpu.problem = problem;
}

std::string normal_bus_id(const std::string& text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int length = 0;
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &length) != 4 ||
      static_cast<size_t>(length) != text.size())
    return text;
  char normal[40];
  std::snprintf(normal, sizeof normal, "%04x:%02x:%02x.%x", domain, bus, device, function);
  return normal;
}

namespace {

/// The threads that ask hand these over. They keep it alive, since they may run longer than the caller waits.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  Lines lines;
};

/// Asks each GPU on a thread that is never waited for: `take` gets each line, never two at once.
void ask_all(const std::function<void(const std::string&)>& take) {
  const auto nvml = std::make_shared<const Nvml>(start_nvml());
  if (!nvml->problem.empty()) {
    take(line_of({{"problem", nvml->problem}}));
    return;
  }
  take(line_of({{"driver", nvml->driver}, {"cuda", nvml->cuda}, {"count", nvml->count}}));
  for (unsigned index = 0; index < nvml->count; ++index) {
    const auto answer = [nvml, index, take] { take(line_of(ask(*nvml, index))); };
    try {
      std::thread(answer).detach();
    } catch (const std::system_error&) {  // the limit on threads is reached: one after the other, then
      answer();
    }
  }
}

std::shared_ptr<Answers> begin_asking(const std::function<void(const std::string&)>& also) {
  const auto answers = std::make_shared<Answers>();
  std::thread([answers, also] {
    ask_all([answers, also](const std::string& line) {
      const std::lock_guard lock(answers->mutex);
      if (also) also(line);
      answers->lines.take(line);
      answers->changed.notify_all();
    });
  }).detach();
  return answers;
}

}  // namespace

Machine look(std::chrono::milliseconds limit) {
  const auto answers = begin_asking({});
  std::unique_lock lock(answers->mutex);
  answers->changed.wait_for(lock, limit, [&] { return answers->lines.complete(); });
  return answers->lines.machine();
}

void write_lines(const std::function<void(const std::string& line)>& write) {
  const auto answers = begin_asking(write);
  std::unique_lock lock(answers->mutex);
  answers->changed.wait(lock, [&] { return answers->lines.complete(); });
}

void Lines::take(const std::string& line) {
  const json value = json::parse(line, nullptr, false);
  if (!value.is_object()) return;
  try {
    if (value.contains("index")) {
      const auto index = value.at("index").get<size_t>();
      if (index >= machine_.gpus.size() || machine_.gpus[index].problem != kNoAnswer) return;
      machine_.gpus[index] = value.get<Gpu>();
      ++answered_;
    } else if (value.contains("count")) {
      machine_.driver = value.at("driver");
      machine_.cuda = value.at("cuda");
      machine_.gpus.resize(value.at("count").get<size_t>());
      for (size_t i = 0; i < machine_.gpus.size(); ++i) {
        machine_.gpus[i].index = static_cast<int>(i);
        machine_.gpus[i].problem = kNoAnswer;
      }
      begun_ = true;
    } else if (value.contains("problem")) {
      machine_.problem = value.at("problem");
      begun_ = true;
    }
  } catch (const json::exception&) {  // of another version: the GPU stays without an answer
  }
}

Machine Lines::machine() const {
  Machine result = machine_;
  if (!begun_) result.problem = kNoAnswer;
  return result;
}

}  // namespace lockstep::gpus
