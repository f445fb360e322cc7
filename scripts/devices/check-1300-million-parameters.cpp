// %% [markdown]
// # How long a comparison of replicas takes
// `inspect::verify` over bfloat16 parameters in 300 tensors: 1.3 billion on a GPU, one million on the CPU. Beside it, the fingerprints alone: what
// `verify` adds is the exchange between the ranks.
//
//     lockstep run scripts/devices/check-1300-million-parameters.cpp -n 2

// %% parameters that are equal on all ranks
const bool on_gpu = torch::Device(device).is_cuda();
const int64_t kMillions = std::stoll(arg("millions", on_gpu ? "1300" : "1"));
set_seed(3);
std::vector<torch::Tensor> parameters;
for (int i = 0; i < 300; ++i)
  parameters.push_back(torch::full({kMillions * 1000000 / 300}, 0.01 * (i + 1), at::TensorOptions(device).dtype(torch::kBFloat16)));
kMillions

// %% a stopwatch
#include <algorithm>
#include <chrono>

double median_ms(const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < 13; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    if (i > 2) times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// %% fingerprints, and the comparison
const double fingerprints = median_ms([] { inspect::fingerprint(parameters); });
bool equal = true;
const double comparison = median_ms([] { equal = inspect::verify(parameters, inspect::VerifyOptions().publish(false)).ok() && equal; });
if (!equal) throw std::runtime_error("equal replicas were found different");
if (rank == 0)
  std::cout << "figure parameters " << kMillions << " million\n"
            << "figure fingerprints_on_host " << std::fixed << std::setprecision(6) << fingerprints << " ms\n"
            << "figure verify " << comparison << " ms\n";
