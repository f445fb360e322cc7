// What the kernels cost on a GPU, beside a plain read of as many bytes in the same run, and what watching for NaN adds
// to a training step. Prints a JSON line per case; without a GPU, that it was skipped.
//
//   gpu_benchmark [ROUNDS] [--dry-run]
//
//   --dry-run   every case on the CPU with small tensors, to test this program; its figures mean nothing
//
// Times are between two events on the stream, so that the copy of a launch's table counts; host times are those of the
// call that queues the work. Rounds take turns.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cuda/plain_read.h"
#include "benchmarks/ddp/models.h"
#include "benchmarks/inspectors/plain_sum.h"
#include "inspectors/device/functions.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "lockstep/inspect.h"

using namespace lockstep;

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ---- Where it runs --------------------------------------------------------------------------------------------------

// What stands for the plug-in in a dry run.
at::Tensor fingerprint_on_cpu(at::TensorList tensors) {
  static_cast<void>(inspect::fingerprint(tensors));
  return torch::empty({0}, at::kLong);
}
at::Tensor first_bad_on_cpu(at::TensorList tensors) {
  int32_t bad = std::numeric_limits<int32_t>::max();
  const auto found = inspect::fingerprint(tensors);
  for (size_t i = found.size(); i-- > 0;)
    if (found[i].nan_count + found[i].inf_count > 0) bad = static_cast<int32_t>(i);
  return torch::full({1}, bad, at::kInt);
}

struct Place {
  at::DeviceType device = at::kCUDA;
  inspect::DeviceFunctions functions;
  int rounds = 50;
  double scale = 1;  // of sizes

  bool is_dry() const { return device == at::kCPU; }
  void synchronize() const {
    if (!is_dry()) torch::cuda::synchronize();
  }
};

volatile uint64_t sink;  // keeps results alive

/// Queues a plain read of each tensor by a launch of its own.
void read_plainly(const Place& place, const std::vector<at::Tensor>& tensors) {
  if (place.is_dry()) {
    uint64_t sum = 0;
    for (const at::Tensor& tensor : tensors)
      sum += benchmark::plain_sum(static_cast<const uint64_t*>(tensor.const_data_ptr()),
                                  static_cast<int64_t>(tensor.nbytes() / 8));
    sink = sum;
    return;
  }
  static const at::Tensor on_device = torch::zeros({1}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  for (const at::Tensor& tensor : tensors)
    C10_CUDA_CHECK(benchmark::plain_read(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()),
                                         reinterpret_cast<uint32_t*>(on_device.mutable_data_ptr<int32_t>()),
                                         c10::cuda::getCurrentCUDAStream().stream()));
}

struct Times {
  std::vector<double> device_ms, host_ms;

  void add(const Place& place, const std::function<void()>& what) {
    if (place.is_dry()) {
      const auto before = Clock::now();
      what();
      host_ms.push_back(milliseconds_since(before));
      device_ms.push_back(host_ms.back());
      return;
    }
    const c10::Stream stream = c10::cuda::getCurrentCUDAStream();
    // Flags of the backend, not LibTorch's: with timing.
    c10::Event start(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT), end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    torch::cuda::synchronize();
    start.record(stream);
    const auto before = Clock::now();
    what();
    host_ms.push_back(milliseconds_since(before));
    end.record(stream);
    end.synchronize();
    device_ms.push_back(start.elapsedTime(end));
  }
  json record(double bytes) const {
    const double ms = median(device_ms);
    return {{"device_ms", ms},
            {"best_device_ms", *std::min_element(device_ms.begin(), device_ms.end())},
            {"host_ms", median(host_ms)},
            {"gb_per_s", bytes / ms / 1e6}};
  }
};

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

/// How many kernels of each name a call launches, by LibTorch's profiler; null where it has seen none.
json kernels_of(const Place& place, const std::function<void()>& call) {
  if (place.is_dry()) return nullptr;
  using namespace torch::profiler::impl;
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  call();
  place.synchronize();
  const auto result = torch::autograd::profiler::disableProfiler();
  std::map<std::string, int> kernels;
  for (const auto& event : result->events()) {
    const std::string name = event.name();
    if (event.deviceType() == at::kCUDA && name.find("Memcpy") == std::string::npos &&
        name.find("Memset") == std::string::npos)
      ++kernels[name];
  }
  return kernels.empty() ? json(nullptr) : json(kernels);
}

/// A launch over all tensors, in turns with a plain read of one tensor of as many bytes, which is the roof.
void compare(const Place& place, const std::string& name, const std::vector<at::Tensor>& tensors, bool counts = false) {
  const double bytes = bytes_of(tensors);
  const std::vector<at::Tensor> whole = {
      torch::ones({static_cast<int64_t>(bytes)}, at::TensorOptions(place.device).dtype(at::kByte))};
  Times plain, fingerprint, sentinel;
  for (int round = -2; round < place.rounds; ++round) {
    if (round == 0) plain = fingerprint = sentinel = {};  // the first two warm up
    plain.add(place, [&] { read_plainly(place, whole); });
    fingerprint.add(place, [&] { place.functions.fingerprint(tensors); });
    sentinel.add(place, [&] { place.functions.first_bad(tensors); });
  }
  const double reference = median(plain.device_ms);
  json line{{"case", name},
            {"tensors", tensors.size()},
            {"bytes", bytes},
            {"plain_read", plain.record(bytes)},
            {"fingerprint", fingerprint.record(bytes)},
            {"sentinel", sentinel.record(bytes)},
            {"fingerprint_of_plain_read", reference / median(fingerprint.device_ms)},
            {"sentinel_of_plain_read", reference / median(sentinel.device_ms)}};
  if (counts) {
    line["fingerprint_kernels"] = kernels_of(place, [&] { place.functions.fingerprint(tensors); });
    line["sentinel_kernels"] = kernels_of(place, [&] { place.functions.first_bad(tensors); });
  }
  std::cout << line << std::endl;
}

/// What a rank does to say whether its tensors are those that another one has: fingerprints on the host, and a
/// comparison. Beside it, one read of as many bytes until it has ended.
void check_equality(const Place& place, const std::vector<at::Tensor>& tensors) {
  const auto expected = inspect::fingerprint(tensors);
  const std::vector<at::Tensor> whole = {
      torch::ones({static_cast<int64_t>(bytes_of(tensors))}, at::TensorOptions(place.device).dtype(at::kByte))};
  std::vector<double> check, read;
  for (int round = -2; round < place.rounds; ++round) {
    if (round == 0) {
      check.clear();
      read.clear();
    }
    place.synchronize();
    auto start = Clock::now();
    if (inspect::fingerprint(tensors) != expected) {
      std::cerr << "the fingerprints of tensors that did not change have changed\n";
      std::exit(1);
    }
    check.push_back(milliseconds_since(start));
    start = Clock::now();
    read_plainly(place, whole);
    place.synchronize();
    read.push_back(milliseconds_since(start));
  }
  std::cout << json{{"case", "equality check"},
                    {"tensors", tensors.size()},
                    {"bytes", bytes_of(tensors)},
                    {"wall_ms", median(check)},
                    {"best_wall_ms", *std::min_element(check.begin(), check.end())},
                    {"plain_read_wall_ms", median(read)}}
            << std::endl;
}

// ---- A training step ------------------------------------------------------------------------------------------------

/// The encoder layer of benchmarks/ddp in sizes that keep a GPU busy.
struct LargeTransformerImpl : torch::nn::Module {
  LargeTransformerImpl(int64_t width, int64_t layer_count, int64_t words)
      : token(register_module("token", torch::nn::Embedding(words, width))),
        head(register_module("head", torch::nn::Linear(width, words))) {
    for (int64_t i = 0; i < layer_count; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), benchmark::EncoderLayer(width, width / 64)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = token(x);
    for (auto& layer : layers) y = layer(y);
    return head(y).flatten(0, 1);
  }
  torch::nn::Embedding token;
  torch::nn::Linear head;
  std::vector<benchmark::EncoderLayer> layers;
};

struct StepSize {
  int64_t width, layers, words, batch, length;
};

/// Blocks of steps without synchronisation inside, in turns: plain; with one launch of the sentinel over all gradients,
/// read a step later; and with inspect::nan_watch, which is what `%nan on` uses. The replica is the same in all three:
/// looking does not change it.
void transformer_step(const Place& place, const StepSize& size) {
  const auto options = at::TensorOptions(place.device);
  torch::manual_seed(0);
  auto module = std::make_shared<LargeTransformerImpl>(size.width, size.layers, size.words);
  const at::ScalarType dtype = place.is_dry() ? at::kFloat : at::kBFloat16;
  module->to(place.device, dtype);
  torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9));
  const auto x = torch::randint(size.words, {size.batch, size.length}, options.dtype(at::kLong));
  const auto y = torch::randint(size.words, {size.batch * size.length}, options.dtype(at::kLong));
  const auto step = [&](const std::function<void()>& look) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(module->forward(x).to(at::kFloat), y).backward();
    look();
    optimizer.step();
  };

  // The flag of the step before is copied into pinned memory on the stream, and read when its event has passed.
  at::Tensor flag =
      torch::full({1}, std::numeric_limits<int32_t>::max(), at::TensorOptions(at::kInt).pinned_memory(!place.is_dry()));
  std::optional<c10::Event> copied;
  bool bad = false;
  const auto sentinel = [&] {
    if (place.is_dry() || (copied && copied->query()))
      bad = bad || flag.const_data_ptr<int32_t>()[0] != std::numeric_limits<int32_t>::max();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : module->parameters()) gradients.push_back(parameter.grad());
    flag.copy_(place.functions.first_bad(gradients), /*non_blocking=*/true);
    if (place.is_dry()) return;
    copied.emplace(place.device);
    copied->record(c10::cuda::getCurrentCUDAStream().unwrap());
  };

  constexpr int kSteps = 5;  // of a block
  const auto block = [&](const std::function<void()>& look) {
    place.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < kSteps; ++i) step(look);
    place.synchronize();
    return milliseconds_since(start) / kSteps;
  };
  std::vector<double> plain, with_sentinel, with_watch;
  const int blocks = std::max(3, place.rounds / 5);
  for (int round = -1; round < blocks; ++round) {
    const double first = block([] {}), second = block(sentinel);
    double third = 0;
    {
      const auto watching = inspect::nan_watch(module);
      third = block([] {});
    }
    if (round < 0) continue;  // warms up
    plain.push_back(first);
    with_sentinel.push_back(second);
    with_watch.push_back(third);
  }
  int64_t parameters = 0;
  for (const at::Tensor& parameter : module->parameters()) parameters += parameter.numel();
  // Ratios of blocks that ran one after the other: what else the machine does changes slowly.
  std::vector<double> sentinel_ratio, watch_ratio;
  for (size_t i = 0; i < plain.size(); ++i) {
    sentinel_ratio.push_back(with_sentinel[i] / plain[i]);
    watch_ratio.push_back(with_watch[i] / plain[i]);
  }
  std::cout << json{{"case", "step of a transformer"},
                    {"parameters", parameters},
                    {"tokens", size.batch * size.length},
                    {"dtype", c10::toString(dtype)},
                    {"found_bad_values", bad},
                    {"plain_ms", median(plain)},
                    {"sentinel_ms", median(with_sentinel)},
                    {"nan_watch_ms", median(with_watch)},
                    {"sentinel_ratio", median(sentinel_ratio)},
                    {"nan_watch_ratio", median(watch_ratio)}}
            << std::endl;
}

// ---- The cases ------------------------------------------------------------------------------------------------------

json device_record() {
  cudaDeviceProp properties;
  int driver = 0, runtime = 0, device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  return {{"case", "device"},
          {"name", properties.name},
          {"memory_bytes", properties.totalGlobalMem},
          {"multiprocessors", properties.multiProcessorCount},
          {"compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"driver_cuda", driver},
          {"runtime_cuda", runtime}};
}

size_t device_memory() {
  size_t free_bytes = 0, all = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all));
  return all;
}

std::vector<at::Tensor> parameters_of_1300_million(const Place& place, at::ScalarType dtype) {
  // 1.3 B parameters of 16 bits in 300 tensors: 2.6 GB of any dtype.
  std::vector<at::Tensor> tensors;
  const auto count =
      static_cast<int64_t>(2.6e9 * place.scale / 300 / 64) * 64 / static_cast<int64_t>(c10::elementSize(dtype));
  const auto options = at::TensorOptions(place.device).dtype(dtype);
  for (int i = 0; i < 300; ++i)
    tensors.push_back(c10::isIntegralType(dtype, true) ? torch::randint(100, {count}, options)
                                                       : torch::randn({count}, options).mul_(0.02));
  return tensors;
}

void run_cases(const Place& place) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kHalf, at::kLong})
    compare(place, c10::toString(dtype), parameters_of_1300_million(place, dtype));
  check_equality(place, parameters_of_1300_million(place, at::kBFloat16));
  {
    std::vector<at::Tensor> small;
    for (int i = 0; i < static_cast<int>(10000 * std::max(place.scale, 0.01)); ++i)
      small.push_back(torch::randn({1024}, at::TensorOptions(place.device)));
    compare(place, "10,000 tensors of 4 KB", small, /*counts=*/true);
  }
  transformer_step(place, place.is_dry()                        ? StepSize{64, 2, 128, 2, 16}
                          : device_memory() >= size_t{60} << 30 ? StepSize{2048, 16, 32768, 8, 1024}
                                                                : StepSize{1024, 8, 32768, 4, 512});
}

}  // namespace

int main(int argc, char** argv) {
  Place place;
  bool dry = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--dry-run")
      dry = true;
    else
      place.rounds = std::max(1, std::atoi(argv[i]));
  }
  if (dry) {
    place.device = at::kCPU;
    place.functions = {.fingerprint = fingerprint_on_cpu, .first_bad = first_bad_on_cpu};
    place.scale = 1e-3;
    run_cases(place);
    return 0;
  }
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !torch::cuda::is_available()) {
    std::cout << json{{"case", "gpu"}, {"skipped", "no GPU"}} << std::endl;
    return 0;
  }
  const auto* functions = inspect::device_functions(at::kCUDA);
  if (!functions) {
    std::cerr << "liblockstep_cuda.so is not beside liblockstep.so, or can't be loaded\n";
    return 1;
  }
  place.functions = *functions;
  std::cout << device_record() << std::endl;
  run_cases(place);
}
