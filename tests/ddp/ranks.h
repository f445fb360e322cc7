// Ranks as threads of one process over Gloo on the loopback interface, and what tests of replicas need beside them:
// parameters and batches that depend on a seed only.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::test {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A Gloo group as c10d has it, over `store`.
inline Group make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& name) {
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->threads = 2;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setGroupName(name);
  return group;
}

struct Rank {
  int rank;
  int size;
  Group group;
  c10::intrusive_ptr<c10d::Store> store;
};

/// Runs `body` on every rank. Returns what each threw, empty if it threw nothing. A rank that throws leaves the group,
/// so the others do not wait for it.
inline std::vector<std::string> errors_of_ranks(int size, const std::function<void(Rank&)>& body) {
  torch::set_num_threads(1);
  std::signal(SIGPIPE, SIG_IGN);  // as Python does: a rank that throws closes connections to which Gloo still writes
  setenv("TORCH_FR_BUFFER_SIZE", "0", 0);  // the flight recorder is one a process and does not expect ranks as threads
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        Rank rank{r, size, make_group(store, r, size, "all"), store};
        body(rank);
      } catch (const c10::Error& error) {
        errors[r] = error.what_without_backtrace();
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

inline void run_ranks(int size, const std::function<void(Rank&)>& body) {
  const auto errors = errors_of_ranks(size, body);
  for (int r = 0; r < size; ++r) EXPECT_EQ(errors[r], "") << "on rank " << r;
}

inline torch::Tensor random_tensor(torch::IntArrayRef sizes, uint64_t seed) {
  return torch::randn(sizes, torch::make_generator<torch::CPUGeneratorImpl>(seed));
}

/// The batch of a rank in a step.
inline torch::Tensor input_of(const Rank& rank, int step = 0) { return random_tensor({4, 8}, 100 * step + rank.rank); }

inline void fill_parameters(torch::nn::Module& module, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.copy_(random_tensor(parameter.sizes(), seed++) * 0.2);
}

/// All values of parameters (and buffers), one after the other.
inline torch::Tensor flat(const torch::nn::Module& module, bool buffers = true) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts{torch::zeros({0}, torch::kDouble)};
  for (const auto& parameter : module.parameters()) parts.push_back(parameter.detach().to(torch::kDouble).flatten());
  if (buffers) {
    for (const auto& buffer : module.buffers()) parts.push_back(buffer.to(torch::kDouble).flatten());
  }
  return torch::cat(parts).clone();
}

inline torch::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts{torch::zeros({0}, torch::kDouble)};
  for (const auto& parameter : module.parameters()) {
    const auto gradient = parameter.grad().defined() ? parameter.grad().to_dense() : torch::zeros_like(parameter);
    parts.push_back(gradient.detach().to(torch::kDouble).flatten());
  }
  return torch::cat(parts).clone();
}

/// `mine` of every rank, by rank.
inline std::vector<torch::Tensor> gather(const Rank& rank, torch::Tensor mine) {
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int i = 0; i < rank.size; ++i) all[0].push_back(torch::empty_like(mine));
  std::vector<torch::Tensor> tensors{mine};
  rank.group->allgather(all, tensors)->wait();
  return all[0];
}

inline void expect_equal_on_ranks(const Rank& rank, const torch::Tensor& mine) {
  for (const auto& theirs : gather(rank, mine)) EXPECT_TRUE(theirs.equal(mine)) << "rank " << rank.rank;
}

/// The gradients are not zero, and the same on every rank, where every rank had inputs of its own.
inline void expect_reduced(const Rank& rank, const torch::nn::Module& module) {
  EXPECT_GT(flat_gradients(module).abs().sum().item<double>(), 0);
  expect_equal_on_ranks(rank, flat_gradients(module));
}

/// What `call` throws; empty where it throws nothing.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline double max_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace lockstep::test
