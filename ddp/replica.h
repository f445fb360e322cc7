// A replica is the module that a wrapper holds, with what the wrapper reduces and keeps equal of it: parameters,
// buffers, and their device.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/options.h"
#include "ddp/parameter_check.h"

namespace lockstep::ddp::detail {

class Replica {
 public:
  /// Throws ArgumentError without a module.
  explicit Replica(std::shared_ptr<torch::nn::Module> module);

  /// Checks the module against `options` and finds what is reduced. Throws ArgumentError where they do not fit.
  void collect(const Options& options);
  /// Returns what has to agree on all ranks.
  ReplicaDescription description(const Options& options) const;

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  /// Returns the device of the first parameter, or the CPU without one.
  torch::Device device() const { return device_; }
  /// Returns the parameters that the Reducer reduces, by their index in it. One that is shared is listed once, under
  /// its first name.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<bool>& sparse() const { return sparse_; }  // whether the gradient is
  /// Returns the buffers that are kept equal, in the module's order, each once.
  const std::vector<std::pair<std::string, torch::Tensor>>& buffers() const { return buffers_; }
  bool is_ignored(const std::string& name) const { return ignored_.count(name) > 0; }

  /// Lets all ranks take the values of rank `src`. Collective.
  void broadcast_buffers(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int src) const;
  void broadcast(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int src, bool with_buffers) const;

 private:
  void choose_device(const Options& options);
  void collect_ignored(const Options& options);
  void collect_parameters();
  void collect_buffers();
  void check_mixed_precision(const Options& options) const;

  std::shared_ptr<torch::nn::Module> module_;
  torch::Device device_ = torch::kCPU;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<bool> sparse_;
  std::unordered_set<std::string> ignored_;
  std::vector<std::pair<std::string, torch::Tensor>> buffers_;
};

/// While it lives, all parameters require gradients, also those that the program has frozen since they were wrapped:
/// others have no node on which c10d's Reducer could put its hook.
class Thawed {
 public:
  explicit Thawed(const std::vector<torch::Tensor>& parameters);
  ~Thawed();
  Thawed(const Thawed&) = delete;
  Thawed& operator=(const Thawed&) = delete;

 private:
  std::vector<torch::Tensor> frozen_;
};

}  // namespace lockstep::ddp::detail
