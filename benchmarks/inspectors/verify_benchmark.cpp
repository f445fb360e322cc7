// verify on two ranks (two processes over the loopback interface) with equal replicas, beside what people do without it, in
// the same run: all_gather and allclose of each parameter, a SHA-1 of each parameter, and one read of the memory (a plain
// sum). The variants take turns, round by round. Prints one JSON line per size: medians in seconds, and ratios.
//
//   verify_benchmark [ROUNDS] [MILLIONS OF FLOAT32]...
#include <openssl/evp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "dist/dist.h"
#include "dist/tcp_store.h"
#include "inspectors/inspect.h"

extern char** environ;

namespace {

using namespace lockstep;

constexpr int64_t kTensors = 160;

__attribute__((target_clones("avx512f", "avx2", "default"))) uint64_t plain_sum(const uint64_t* words, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void must(bool equal) {
  if (!equal) {
    std::cerr << "the replicas are equal, and were found different\n";
    std::exit(1);
  }
}

volatile uint64_t sink;  // keeps results alive

void read_once(const std::vector<at::Tensor>& tensors) {
  uint64_t sum = 0;
  for (const at::Tensor& each : tensors)
    sum += plain_sum(static_cast<const uint64_t*>(each.const_data_ptr()), static_cast<int64_t>(each.nbytes() / 8));
  sink = sum;
}

void gather_and_allclose(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& each : tensors)
    for (const at::Tensor& other : dist::all_gather(each)) must(at::allclose(each, other));
}

void sha1(const std::vector<at::Tensor>& tensors) {
  constexpr unsigned kDigest = 20;
  const at::Tensor digests = at::empty({static_cast<int64_t>(tensors.size()), kDigest}, at::kByte);
  auto* to = digests.mutable_data_ptr<uint8_t>();
  for (const at::Tensor& each : tensors) {
    EVP_Digest(each.const_data_ptr(), each.nbytes(), to, nullptr, EVP_sha1(), nullptr);
    to += kDigest;
  }
  for (const at::Tensor& other : dist::all_gather(digests)) must(at::equal(other, digests));
}

void measure(int rank, int rounds, int64_t millions) {
  std::vector<at::Tensor> tensors;
  torch::manual_seed(1);
  for (int64_t i = 0; i < kTensors; ++i) tensors.push_back(at::randn({millions * 1'000'000 / kTensors}));
  const std::vector<std::pair<std::string, std::function<void()>>> variants = {
      {"plain_sum", [&] { read_once(tensors); }},
      {"verify", [&] { must(inspect::verify(tensors).ok()); }},
      {"sha1_per_parameter", [&] { sha1(tensors); }},
      {"all_gather_allclose", [&] { gather_and_allclose(tensors); }}};
  std::map<std::string, std::vector<double>> seconds;
  for (int round = 0; round <= rounds; ++round) {
    for (const auto& [name, call] : variants) {
      dist::barrier();
      const auto start = std::chrono::steady_clock::now();
      call();
      if (round > 0)
        seconds[name].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  if (rank != 0) return;
  nlohmann::json result{{"benchmark", "verify of equal replicas, 2 ranks"},
                        {"millions_of_float32", millions},
                        {"tensors", kTensors},
                        {"rounds", rounds},
                        {"threads", at::get_num_threads()}};
  const auto median = [&](const std::string& name) {
    std::vector<double>& values = seconds[name];
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  for (const auto& [name, call] : variants) result[name + "_s"] = median(name);
  result["times_faster_than_all_gather_allclose"] = median("all_gather_allclose") / median("verify");
  result["times_faster_than_sha1"] = median("sha1_per_parameter") / median("verify");
  result["reads_of_memory"] = median("verify") / median("plain_sum");
  std::cout << result << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  // The second rank is this program again, told the port by the environment.
  const char* told = std::getenv("VERIFY_BENCHMARK_PORT");
  const dist::TcpStore store =
      told ? dist::connect_store("127.0.0.1", std::atoi(told)) : dist::serve_store("127.0.0.1", 0);
  pid_t child = 0;
  if (!told) {
    setenv("VERIFY_BENCHMARK_PORT", std::to_string(store->getPort()).c_str(), 1);
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return 1;
  }
  const int rank = told ? 1 : 0;
  dist::init_process_group(dist::InitOptions{.world_size = 2, .rank = rank, .store = store});
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 5;
  std::vector<int64_t> sizes;
  for (int i = 2; i < count; ++i) sizes.push_back(std::atoll(arguments[i]));
  if (sizes.empty()) sizes = {25, 135};
  for (const int64_t millions : sizes) measure(rank, rounds, millions);
  dist::barrier();
  dist::destroy_process_group();
  if (child) waitpid(child, nullptr, 0);
}
