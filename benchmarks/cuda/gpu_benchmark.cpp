// How fast the kernels read a GPU's memory, beside a plain read of the same bytes in the same run. Prints a JSON line per
// case; without a GPU, that it was skipped.
//
//   gpu_benchmark [ROUNDS]
//
// Times are between two events on the stream, so that the copy of a launch's table counts; host times are those of the
// call that queues the work. Rounds take turns.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "benchmarks/cuda/plain_read.h"
#include "inspectors/device/functions.h"

using namespace lockstep;

namespace {

struct Times {
  std::vector<double> device_ms, host_ms;

  void add(const std::function<void()>& what) {
    const c10::Stream stream = c10::cuda::getCurrentCUDAStream();
    // Flags of the backend, not LibTorch's: with timing.
    c10::Event start(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT), end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    torch::cuda::synchronize();
    start.record(stream);
    const auto before = std::chrono::steady_clock::now();
    what();
    host_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count());
    end.record(stream);
    end.synchronize();
    device_ms.push_back(start.elapsedTime(end));
  }
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  nlohmann::json record(double bytes) const {
    const double ms = median(device_ms);
    return {{"device_ms", ms},
            {"best_device_ms", *std::min_element(device_ms.begin(), device_ms.end())},
            {"host_ms", median(host_ms)},
            {"gb_per_s", bytes / ms / 1e6}};
  }
};

/// A launch over all tensors, in turns with plain reads of each.
void compare(const char* name, const std::vector<at::Tensor>& tensors, int rounds) {
  const inspect::DeviceFunctions& functions = *inspect::device_functions(at::kCUDA);
  const at::Tensor sink = torch::zeros({1}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  const auto read_plainly = [&] {
    for (const at::Tensor& tensor : tensors)
      C10_CUDA_CHECK(benchmark::plain_read(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()),
                                           reinterpret_cast<uint32_t*>(sink.mutable_data_ptr<int32_t>()),
                                           c10::cuda::getCurrentCUDAStream().stream()));
  };
  Times plain, fingerprint, sentinel;
  for (int round = -2; round < rounds; ++round) {
    if (round == 0) plain = fingerprint = sentinel = {};  // the first two warm up
    plain.add(read_plainly);
    fingerprint.add([&] { functions.fingerprint(tensors); });
    sentinel.add([&] { functions.first_bad(tensors); });
  }
  const double reference = Times::median(plain.device_ms);
  std::cout << nlohmann::json{{"case", name},
                              {"tensors", tensors.size()},
                              {"bytes", bytes},
                              {"plain_read", plain.record(bytes)},
                              {"fingerprint", fingerprint.record(bytes)},
                              {"sentinel", sentinel.record(bytes)},
                              {"fingerprint_of_plain_read", reference / Times::median(fingerprint.device_ms)},
                              {"sentinel_of_plain_read", reference / Times::median(sentinel.device_ms)}}
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 50;
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !torch::cuda::is_available()) {
    std::cout << nlohmann::json{{"case", "gpu"}, {"skipped", "no GPU"}} << std::endl;
    return 0;
  }
  if (!inspect::device_functions(at::kCUDA)) {
    std::cerr << "liblockstep_cuda.so is not beside liblockstep.so, or can't be loaded\n";
    return 1;
  }
  const auto on_gpu = at::TensorOptions(at::kCUDA);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kHalf, at::kLong}) {
    // 1.3 B parameters of 16 bits in 300 tensors: 2.6 GB of any dtype.
    std::vector<at::Tensor> tensors;
    const auto count = static_cast<int64_t>(2.6e9 / 300 / 64) * 64 / static_cast<int64_t>(c10::elementSize(dtype));
    for (int i = 0; i < 300; ++i)
      tensors.push_back(c10::isIntegralType(dtype, true) ? torch::randint(100, {count}, on_gpu.dtype(dtype))
                                                         : torch::randn({count}, on_gpu.dtype(dtype)).mul_(0.02));
    compare(c10::toString(dtype), tensors, rounds);
  }
  std::vector<at::Tensor> small;
  for (int i = 0; i < 10000; ++i) small.push_back(torch::randn({1024}, on_gpu));
  compare("10,000 tensors of 4 KB", small, rounds);
}
