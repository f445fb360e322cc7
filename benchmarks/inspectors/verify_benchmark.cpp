// verify on ranks that are processes, with equal replicas, beside what people do without it, in the same run: all_gather and
// allclose of each parameter, a SHA-1 of each parameter, and one read of the memory (a plain sum). And beside another way for
// verify itself: after the fingerprints one MAX all-reduce of h and ~h of all tensors, which are equal where MAX h = h and
// MAX ~h = ~h; alone, and behind the meeting that keeps a rank that does not come, or came with something else, from being
// waited for in a collective. Prints one JSON line per size: medians in seconds until all ranks are done, and ratios.
//
//   verify_benchmark [ROUNDS] [RANKS] [MILLIONS OF FLOAT32]...
//
// A size that is negative leaves out all_gather and SHA-1, which take most of the time.
#include <openssl/evp.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "benchmarks/inspectors/plain_sum.h"
#include "benchmarks/inspectors/ranks_in_turns.h"
#include "collectives/dist.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "lockstep/inspect.h"

namespace {

using namespace lockstep;

constexpr int64_t kTensors = 160;

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
    sum += benchmark::plain_sum(static_cast<const uint64_t*>(each.const_data_ptr()),
                                static_cast<int64_t>(each.nbytes() / 8));
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

/// The fingerprints' hashes as numbers, and the complements of these.
at::Tensor hashes(const std::vector<at::Tensor>& tensors) {
  const std::vector<inspect::Fingerprint> marks = inspect::fingerprint(tensors);
  const at::Tensor result = at::empty({4 * static_cast<int64_t>(marks.size())}, at::kLong);
  auto* to = result.mutable_data_ptr<int64_t>();
  for (const inspect::Fingerprint& mark : marks) {
    for (const uint64_t half : mark.hash) {
      *to++ = static_cast<int64_t>(half);
      *to++ = ~static_cast<int64_t>(half);
    }
  }
  return result;
}

void all_reduce_hashes(const std::vector<at::Tensor>& tensors) {
  const at::Tensor own = hashes(tensors);
  const at::Tensor greatest = own.clone();
  dist::all_reduce(greatest, dist::ReduceOp::MAX);
  must(at::equal(greatest, own));
}

void measure(int rank, int world_size, int rounds, int64_t millions, bool with_slow_ones) {
  std::vector<at::Tensor> tensors;
  torch::manual_seed(1);
  for (int64_t i = 0; i < kTensors; ++i) tensors.push_back(at::randn({millions * 1'000'000 / kTensors}));
  const auto meet = [] { must(inspect::verify(kTensors).ok()); };
  benchmark::Calls calls = {
      {"plain_sum", [&] { read_once(tensors); }},
      {"verify", [&] { must(inspect::verify(tensors).ok()); }},
      {"fingerprints", [&] { hashes(tensors); }},
      {"fingerprints_all_reduce", [&] { all_reduce_hashes(tensors); }},
      {"meeting_fingerprints_all_reduce",
       [&] {
         meet();
         all_reduce_hashes(tensors);
       }},
      {"meeting", meet},
      {"small_all_reduce", [] { dist::all_reduce(at::ones({2}, at::kLong), dist::ReduceOp::MAX); }}};
  if (with_slow_ones) {
    calls.emplace_back("sha1_per_parameter", [&] { sha1(tensors); });
    calls.emplace_back("all_gather_allclose", [&] { gather_and_allclose(tensors); });
  }
  const auto seconds = benchmark::in_turns(rounds, calls);
  if (rank != 0) return;
  nlohmann::json result = benchmark::with_seconds({{"benchmark", "verify of equal replicas"},
                                                   {"ranks", world_size},
                                                   {"millions_of_float32", millions},
                                                   {"tensors", kTensors},
                                                   {"rounds", rounds},
                                                   {"threads", at::get_num_threads()}},
                                                  seconds);
  for (const auto& [suffix, which] :
       {std::pair("", &benchmark::Seconds::median), std::pair("_best", &benchmark::Seconds::best)}) {
    const auto took = [&](const char* name) { return seconds.at(name).*which; };
    const auto put = [&](const std::string& name, double value) { result[name + suffix] = value; };
    if (with_slow_ones) {
      put("times_faster_than_all_gather_allclose", took("all_gather_allclose") / took("verify"));
      put("times_faster_than_sha1", took("sha1_per_parameter") / took("verify"));
    }
    put("reads_of_memory", took("verify") / took("plain_sum"));
    put("reads_of_memory_without_three_all_reduces",
        (took("verify") - 3 * took("small_all_reduce")) / took("plain_sum"));
  }
  std::cout << result << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 5;
  const int ranks = count > 2 ? std::atoi(arguments[2]) : 2;
  std::vector<int64_t> sizes;
  for (int i = 3; i < count; ++i) sizes.push_back(std::atoll(arguments[i]));
  if (sizes.empty()) sizes = {25, 135};
  return benchmark::run_as_ranks(ranks, arguments, [&](int rank) {
    for (const int64_t millions : sizes) measure(rank, ranks, rounds, std::abs(millions), millions > 0);
  });
}
