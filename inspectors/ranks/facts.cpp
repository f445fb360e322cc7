#include "inspectors/ranks/ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/DefaultDtype.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <sys/stat.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/log/process_identity.h"
#include "collectives/rank_context.h"
#include "inspectors/trace/cell_code.h"
#include "protocol/checksum.h"
#include "protocol/environment.h"
#include "protocol/json_fields.h"

extern char** environ;

namespace lockstep::inspect {
namespace {

using std::string_view;

// These are variables of one rank.
constexpr std::array kOfItsOwn = {string_view("CUDA_VISIBLE_DEVICES"),
                                  string_view("NVIDIA_VISIBLE_DEVICES"),
                                  string_view("HIP_VISIBLE_DEVICES"),
                                  string_view("RANK"),
                                  string_view("LOCAL_RANK"),
                                  string_view("GROUP_RANK"),
                                  string_view("ROLE_RANK"),
                                  string_view("LOCKSTEP_RANK"),
                                  string_view("LOCKSTEP_LOCAL_RANK"),
                                  string_view("LOCKSTEP_NODE_RANK"),
                                  string_view("LOCKSTEP_GENERATION"),
                                  string_view("LOCKSTEP_DEVICE"),
                                  string_view("LOCKSTEP_SESSION_DIR"),
                                  string_view("LOCKSTEP_HUB"),
                                  string_view("LOCKSTEP_OUTPUT_FDS"),
                                  string_view("LOCKSTEP_LIFELINE_FD"),
                                  string_view("LOCKSTEP_STORE"),
                                  string_view("LOCKSTEP_STORE_KEY"),
                                  string_view("LOCKSTEP_ARGUMENTS")};
constexpr std::array kDecisive = {string_view("MKL_CBWR"),
                                  string_view("MKL_ENABLE_INSTRUCTIONS"),
                                  string_view("ATEN_CPU_CAPABILITY"),
                                  string_view("CUBLAS_WORKSPACE_CONFIG"),
                                  string_view("NVIDIA_TF32_OVERRIDE"),
                                  string_view("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
                                  string_view("TORCH_CUDNN_V8_API_DISABLED"),
                                  string_view("WORLD_SIZE"),
                                  string_view("MASTER_ADDR"),
                                  string_view("MASTER_PORT"),
                                  string_view("LOCKSTEP_BACKEND"),
                                  string_view("LOCKSTEP_CHECK_COLLECTIVES"),
                                  string_view("LOCKSTEP_SIMD"),
                                  string_view("LOCKSTEP_WORLD_SIZE")};
// NCCL's algorithm must be the same on all ranks: according to its manual, ranks may hang otherwise.
constexpr std::array kDecisivePrefixes = {string_view("NCCL_ALGO"),
                                          string_view("NCCL_PROTO"),
                                          string_view("NCCL_P2P_"),
                                          string_view("NCCL_SHM_"),
                                          string_view("NCCL_IB_DISABLE"),
                                          string_view("NCCL_NET"),
                                          string_view("NCCL_MIN_"),
                                          string_view("NCCL_MAX_"),
                                          string_view("NCCL_NTHREADS"),
                                          string_view("NCCL_BUFFSIZE"),
                                          string_view("NCCL_NVLS_"),
                                          string_view("NCCL_COLLNET_"),
                                          string_view("NCCL_CUMEM_"),
                                          string_view("NCCL_CROSS_NIC"),
                                          string_view("NCCL_LAUNCH_MODE"),
                                          string_view("TORCH_NCCL_BLOCKING_WAIT"),
                                          string_view("TORCH_NCCL_USE_COMM_NONBLOCKING"),
                                          string_view("TORCH_DISTRIBUTED_DEBUG"),
                                          string_view("DDP_")};
constexpr std::array kOfInterest = {string_view("NCCL_"),   string_view("GLOO_"),    string_view("OMP_"),
                                    string_view("MKL_"),    string_view("KMP_"),     string_view("OPENBLAS_"),
                                    string_view("TORCH_"),  string_view("PYTORCH_"), string_view("LD_"),
                                    string_view("CUDA_"),   string_view("CUBLAS_"),  string_view("CUDNN_"),
                                    string_view("NVIDIA_"), string_view("ATEN_"),    string_view("DDP_"),
                                    string_view("UCX_"),    string_view("LOCKSTEP_")};

template <size_t N>
bool contains(const std::array<string_view, N>& list, string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
template <size_t N>
bool has_prefix(const std::array<string_view, N>& list, string_view name) {
  return std::any_of(list.begin(), list.end(), [&](string_view each) { return name.starts_with(each); });
}

std::optional<int> number_in_environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (!text || !*text) continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0') return static_cast<int>(value);
  }
  return std::nullopt;
}

constexpr size_t kSmall = size_t{4} << 20;

/// Returns a hash of an object's code, which is all of it in memory.
uint64_t hash_of_code(uintptr_t base, std::span<const ElfW(Phdr)> segments) {
  uint64_t hash = 0;
  for (const auto& segment : segments) {
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) || (segment.p_flags & PF_W)) continue;
    if (segment.p_memsz > kSmall) continue;
    hash ^= protocol::fnv1a({reinterpret_cast<const char*>(base + segment.p_vaddr), segment.p_memsz});
  }
  return hash;
}

struct LoadedObject {
  std::string path;  // empty: the program
  std::string build_id;
  uint64_t code_hash = 0;  // of small objects
};

std::string build_id_of(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const uint8_t*>(info.dlpi_addr + segment.p_vaddr);
    const uint8_t* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
      const uint8_t* name = at + sizeof note;
      const uint8_t* value = name + ((note.n_namesz + 3) & ~3u);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        return fmt::format("{:02x}", fmt::join(value, value + note.n_descsz, ""));
      at = value + ((note.n_descsz + 3) & ~3u);
    }
  }
  return "";
}

std::vector<LoadedObject> loaded_objects() {
  std::vector<LoadedObject> result;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        LoadedObject object{.path = info->dlpi_name,
                            .build_id = build_id_of(*info),
                            .code_hash = hash_of_code(info->dlpi_addr, {info->dlpi_phdr, info->dlpi_phnum})};
        static_cast<std::vector<LoadedObject>*>(list)->push_back(std::move(object));
        return 0;
      },
      &result);
  return result;
}

/// Returns a text that differs between builds of the object.
std::string mark_of(const LoadedObject& object, const std::string& path) {
  if (!object.build_id.empty()) return object.build_id.substr(0, 16);
  if (object.code_hash != 0) return fmt::format("code {:016x}", object.code_hash);
  struct stat about{};
  return ::stat(path.c_str(), &about) == 0 ? fmt::format("{} bytes", about.st_size) : "";
}

void add_code(RankIdentity& identity) {
  constexpr std::array kLibraries = {string_view("libtorch"),  string_view("libc10"),    string_view("libgomp"),
                                     string_view("libnccl"),   string_view("libcudart"), string_view("libcudnn"),
                                     string_view("libcublas"), string_view("libmkl"),    string_view("libopenblas")};
  if (const auto context = dist::current_context()) {
    const dist::LogMapping& log = context->log()->mapping();
    for (uint32_t i = 0; i < log.header().code_range_count.load(std::memory_order_acquire); ++i) {
      const uintptr_t base = log.code_range(i).begin;
      const ElfW(Ehdr)* const header = header_of_cell(base);
      if (!header) continue;  // it was unloaded
      const std::span segments(reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff), header->e_phnum);
      identity.code[fmt::format("cell {}", log.code_range(i).cell)] =
          fmt::format("{:016x}", hash_of_code(base, segments));
    }
  }
  for (const LoadedObject& object : loaded_objects()) {
    const std::string name = object.path.substr(object.path.rfind('/') + 1);
    if (object.path.empty())
      identity.code["program"] = mark_of(object, "/proc/self/exe");
    else if (name.starts_with("liblockstep"))
      identity.code["liblockstep"] = mark_of(object, object.path);
    else if (has_prefix(kLibraries, name))
      identity.versions[name] = mark_of(object, object.path);
  }
  const uint64_t packed =
      aoti_torch_abi_version();  // of the library that is loaded; layout: torch/headeronly/version.h
  identity.versions["LibTorch"] = fmt::format("{}.{}.{}", packed >> 56, (packed >> 48) & 0xff, (packed >> 40) & 0xff);
}

void add_device(RankIdentity& identity) {
  const char* from_session = std::getenv("LOCKSTEP_DEVICE");
  identity.device = from_session ? from_session : "cpu";
  int index = -1;
  // The CUDA runtime is not linked, but it is loaded together with LibTorch's CUDA part.
  if (!from_session && at::globalContext().hasCUDA()) {
    if (auto* current = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "cudaGetDevice"));
        current && current(&index) == 0)
      identity.device = fmt::format("cuda:{}", index);
  } else if (identity.device.starts_with("cuda:")) {
    index = std::atoi(identity.device.c_str() + 5);
  }
  char address[64] = {};
  auto* find = reinterpret_cast<int (*)(char*, int, int)>(dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  if (index >= 0 && find && find(address, sizeof address, index) == 0) identity.device_id = address;
}

const char* on_off(bool on) { return on ? "on" : "off"; }

void add_settings(Texts& settings) {
  const at::Context& context = at::globalContext();
  settings["deterministic algorithms"] = on_off(context.deterministicAlgorithms());
  settings["default dtype"] = std::string(c10::get_default_dtype().name());
  settings["cuDNN benchmark"] = on_off(context.benchmarkCuDNN());
  settings["cuDNN deterministic"] = on_off(context.deterministicCuDNN());
  settings["flush denormals"] = [] {
    // The product of a denormal number is zero if denormals are flushed.
    volatile float smallest = 1e-40F;
    return smallest * 1.0F == 0.0F ? "on" : "off";
  }();
}

}  // namespace

Weight weight_of_variable(const std::string& name) {
  if (contains(kOfItsOwn, name) || name.starts_with("LOCKSTEP_TEST_")) return Weight::kIgnored;
  if (contains(kDecisive, name) || has_prefix(kDecisivePrefixes, name)) return Weight::kFault;
  return has_prefix(kOfInterest, name) ? Weight::kNote : Weight::kIgnored;
}

RankIdentity own_identity() {
  RankIdentity identity;
  const auto context = dist::current_context();
  identity.rank = context ? context->rank() : number_in_environment({"RANK"}).value_or(0);
  identity.world_size = context ? context->world_size() : number_in_environment({"WORLD_SIZE"}).value_or(1);
  identity.local_rank =
      number_in_environment({"LOCKSTEP_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"});
  identity.node_rank = number_in_environment({"LOCKSTEP_NODE_RANK", "GROUP_RANK", "SLURM_NODEID"});
  identity.pid = ::getpid();
  identity.host = protocol::host_name();
  identity.machine = dist::machine_identity();
  if (context) identity.backend = context->backend();
  identity.cpu = at::get_cpu_capability();
  identity.threads = at::get_num_threads();
  for (char** each = environ; *each; ++each) {
    const string_view line(*each);
    const std::string name(line.substr(0, line.find('=')));
    if (weight_of_variable(name) != Weight::kIgnored) identity.environment[name] = line.substr(name.size() + 1);
  }
  add_code(identity);
  add_device(identity);
  add_settings(identity.settings);
  return identity;
}

std::string text_of(const Texts& texts, const std::string& name) {
  const auto found = texts.find(name);
  return found == texts.end() ? "" : found->second;
}

LOCKSTEP_DECLARED_JSON(RankIdentity, rank, world_size, local_rank, node_rank, pid, host, machine, backend, device,
                       device_id, cpu, threads, environment, versions, code, settings)

}  // namespace lockstep::inspect
