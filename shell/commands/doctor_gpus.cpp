// Checks for `lockstep doctor` what sessions on GPUs need: driver, GPUs, the plug-in and the architectures that it has
// code for, LibTorch with CUDA, NCCL. Without a GPU all of this may be absent.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "protocol/files.h"
#include "protocol/installation.h"
#include "shell/commands/doctor.h"
#include "shell/processes/gpu_lookup.h"
#include "shell/processes/gpu_text.h"
#include "shell/processes/gpus.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Without persistence mode the driver starts each GPU for the question, which takes seconds.
constexpr std::chrono::seconds kDriverLimit{20};

void add_line(std::string& text, const std::string& line) { text += (text.empty() ? "" : "\n") + line; }

/// Returns what follows `prefix` in the name of a file in `folder` that begins with it.
std::optional<std::string> rest_of_name(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return std::nullopt;
}

std::string gpu_line(const gpus::Gpu& gpu) {
  if (!gpu.problem.empty()) return fmt::format("GPU {}: {}", gpu.index, gpu.problem);
  std::vector<std::string> words = {gpu.name};
  if (!gpu.capability.empty()) words.push_back("compute capability " + gpu.capability);
  if (gpu.total_bytes) words.push_back(gigabytes(*gpu.total_bytes));
  if (gpu.ecc) words.emplace_back(*gpu.ecc ? "ECC on" : "ECC off");
  if (gpu.uncorrected_errors.value_or(0) > 0)
    words.push_back(fmt::format("{} uncorrected memory errors", *gpu.uncorrected_errors));
  if (gpu.persistence) words.emplace_back(*gpu.persistence ? "persistence mode on" : "persistence mode off");
  if (gpu.mig.value_or(false)) words.emplace_back("split by MIG");
  if (!gpu.peers.empty()) {
    words.push_back(fmt::format("reads the memory of GPU {}", fmt::join(gpu.peers, ", ")));
  }
  return fmt::format("GPU {}: {}", gpu.index, fmt::join(words, ", "));
}

Check check_driver(const gpus::Machine& machine, int visible) {
  Check check{.name = "gpus",
              .data = {{"visible", visible},
                       {"plugin", !cuda_plugin().empty()},
                       {"driver", machine.driver.empty() ? json() : json(machine.driver)},
                       {"cuda", machine.cuda > 0 ? json(machine.cuda) : json()},
                       {"problem", machine.problem.empty() ? json() : json(machine.problem)},
                       {"gpus", machine.gpus}}};
  const auto note = [&](const std::string& fix) {
    check.state = CheckState::note;
    add_line(check.fix, fix);
  };
  if (visible == 0 && machine.gpus.empty()) {
    check.found = "none visible: ranks run on the CPU";
    return check;
  }
  const std::string reason = no_gpu_reason();
  check.found = fmt::format("{} visible{}", std::max<size_t>(static_cast<size_t>(visible), machine.gpus.size()),
                            reason.empty() ? "; sessions use them" : ", and not usable: ranks run on the CPU");
  if (!machine.driver.empty())
    add_line(check.found,
             fmt::format("driver {}, CUDA up to {}.{}", machine.driver, machine.cuda / 1000, machine.cuda % 1000 / 10));
  for (const gpus::Gpu& gpu : machine.gpus) add_line(check.found, gpu_line(gpu));
  if (!reason.empty()) note(reason);
  if (!machine.problem.empty())
    note("NVML, a part of the driver, can't be asked (" + machine.problem +
         "), so %dist_status shows no memory and temperature of GPUs: install the library of the driver's version "
         "(Debian: libnvidia-ml1; containers: NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
  bool starts_slowly = false;
  for (const gpus::Gpu& gpu : machine.gpus) {
    if (!gpu.problem.empty())
      note(fmt::format("GPU {} can't be used: leave it out (--gpu-ids), and see dmesg for the driver's messages",
                       gpu.index));
    if (gpu.uncorrected_errors.value_or(0) > 0)
      note(
          fmt::format("the memory of GPU {} has failed: nvidia-smi -q -d ECC,ROW_REMAPPER -i {} says more, and a reset "
                      "or a restart of the machine remaps it",
                      gpu.index, gpu.index));
    starts_slowly = starts_slowly || gpu.persistence == false;
  }
  if (starts_slowly) note("persistence mode saves seconds at the start of a session: as root, nvidia-smi -pm 1");
  return check;
}

Check check_plugin(const gpus::Machine& machine, bool is_needed) {
  Check check{.name = "gpu plug-in", .data = nullptr};
  const fs::path path = cuda_plugin();
  if (path.empty()) {
    check.found = "not built";
    if (is_needed) {
      check.state = CheckState::note;
      check.fix = protocol::is_installed()
                      ? "install a package of Lockstep that was built with CUDA's compiler"
                      : "tools/setup --gpu gets CUDA's compiler and LibTorch with CUDA; then configure and build again";
    }
    return check;
  }
  const std::vector<std::string> architectures = plugin_architectures(path);
  check.data = {{"path", path.string()}, {"architectures", architectures}};
  if (architectures.empty()) {
    check.state = CheckState::note;
    check.found = path.string() + " is of another version";
    check.fix = "build or install all of Lockstep again";
    return check;
  }
  check.found = fmt::format("has code for {} (+: and newer ones)", fmt::join(architectures, ", "));
  std::vector<std::string> lacking, wanted;
  for (const gpus::Gpu& gpu : machine.gpus)
    if (!gpu.capability.empty() && !has_code_for(architectures, gpu.capability)) {
      lacking.push_back(fmt::format("GPU {} ({})", gpu.index, gpu.capability));
      std::string number = gpu.capability;
      std::erase(number, '.');
      if (std::ranges::find(wanted, number) == wanted.end()) wanted.push_back(number);
    }
  if (!lacking.empty()) {
    check.state = CheckState::note;
    check.found += fmt::format("; none for {}", fmt::join(lacking, ", "));
    check.fix = fmt::format(
        "build again with -DLOCKSTEP_CUDA_ARCHITECTURES=\"{}\"; tensors on these GPUs are looked at "
        "through copies on the CPU until then",
        fmt::join(wanted, ";"));
  }
  return check;
}

/// Returns "2.28.9"; empty where the library can't be asked.
std::string nccl_version(const fs::path& library) {
  // Nothing of NCCL starts by this, and no driver is needed.
  void* nccl = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!nccl) return {};
  int version = 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(::dlsym(nccl, "ncclGetVersion"));
  if (!get_version || get_version(&version) != 0) return {};
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Check check_libtorch_cuda(const gpus::Machine& machine, bool is_needed) {
  Check check{.name = "cuda libraries", .data = nullptr};
  const protocol::LibTorch libtorch = protocol::find_libtorch();
  std::error_code error;
  if (!libtorch.problem.empty()) {
    check.found = "see libtorch";
    return check;
  }
  const fs::path packages = libtorch.folder / "../nvidia";
  const bool has_cuda = fs::exists(libtorch.folder / "lib/libtorch_cuda.so", error);
  std::string runtime, nccl;
  for (const auto& folder :
       {packages / "cu13/lib", packages / "cu12/lib", packages / "cuda_runtime/lib", libtorch.folder / "lib"})
    if (const auto rest = rest_of_name(folder, "libcudart.so."); rest && runtime.empty()) runtime = *rest;
  for (const auto& folder : {packages / "nccl/lib", libtorch.folder / "lib"})
    if (fs::exists(folder / "libnccl.so.2", error) && nccl.empty()) nccl = nccl_version(folder / "libnccl.so.2");
  check.data = {{"libtorch_cuda", has_cuda},
                {"cuda_runtime", runtime.empty() ? json() : json(runtime)},
                {"nccl", nccl.empty() ? json() : json(nccl)}};
  check.found = fmt::format("LibTorch {} CUDA", has_cuda ? "with" : "without");
  if (!runtime.empty()) check.found += ", CUDA runtime " + runtime;
  if (!nccl.empty()) check.found += ", NCCL " + nccl;
  if (!is_needed) return check;
  const auto note = [&](const std::string& fix) {
    check.state = CheckState::note;
    add_line(check.fix, fix);
  };
  if (!has_cuda)
    note(protocol::is_installed()
             ? "let LOCKSTEP_LIBTORCH name a LibTorch with CUDA, such as that of PyPI's wheel of torch"
             : "tools/setup --gpu gets LibTorch with CUDA and NCCL");
  else if (nccl.empty())
    note(
        "libnccl.so.2 is not beside LibTorch: pip install nvidia-nccl-cu13 into the folder of LibTorch's wheel, or "
        "tools/setup --gpu");
  int major = 0;
  std::from_chars(runtime.data(), runtime.data() + runtime.size(), major);
  if (major > 0 && machine.cuda > 0 && machine.cuda / 1000 < major)
    note(fmt::format(
        "the driver {} supports CUDA up to {}.{}, and LibTorch is built with CUDA {}: install a newer driver",
        machine.driver, machine.cuda / 1000, machine.cuda % 1000 / 10, major));
  return check;
}

}  // namespace

std::vector<std::string> plugin_architectures(const std::string& library) {
  static const std::string kMark = "lockstep-cuda-architectures:";
  const std::string bytes = protocol::read_file(library).value_or("");
  const size_t mark = bytes.find(kMark);
  if (mark == std::string::npos) return {};
  std::vector<std::string> result;
  std::string number;
  for (size_t i = mark + kMark.size(); i < bytes.size(); ++i) {
    if (bytes[i] != ',' && bytes[i] != ';') {
      number += bytes[i];
      continue;
    }
    // "90" is compute capability 9.0, "120" is 12.0; a + follows the last digit.
    const bool newer = number.ends_with('+');
    if (newer) number.pop_back();
    if (number.size() < 2) return {};
    result.push_back(number.substr(0, number.size() - 1) + "." + number.back() + (newer ? "+" : ""));
    number.clear();
    if (bytes[i] == ';') break;
  }
  // PTX of the last architecture comes with its code, and is named once.
  std::erase_if(result, [&](const std::string& each) { return std::ranges::find(result, each + "+") != result.end(); });
  return result;
}

bool has_code_for(const std::vector<std::string>& architectures, const std::string& capability) {
  const auto numbers = [](const std::string& text) {
    return std::pair(std::atoi(text.c_str()), std::atoi(text.c_str() + std::min(text.find('.') + 1, text.size())));
  };
  const auto [major, minor] = numbers(capability);
  for (const std::string& each : architectures) {
    const auto [code_major, code_minor] = numbers(each);
    if (major == code_major && minor >= code_minor) return true;
    if (each.ends_with('+') && std::pair(major, minor) >= std::pair(code_major, code_minor)) return true;
  }
  return false;
}

std::vector<Check> check_gpus() {
  const int visible = visible_gpus();
  const gpus::Machine machine = look_at_gpus(kDriverLimit);
  const bool is_needed = visible > 0 || !machine.gpus.empty();
  return {check_driver(machine, visible), check_plugin(machine, is_needed), check_libtorch_cuda(machine, is_needed)};
}

}  // namespace lockstep::shell
