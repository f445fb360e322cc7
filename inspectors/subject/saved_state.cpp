#include "inspectors/subject/saved_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "ddp/inspection.h"
#include "inspectors/subject/learning_rate.h"

namespace lockstep::inspect {
namespace {

/// Returns all bytes of a storage as a tensor. Writing to it does not change the version counters of its tensors.
at::Tensor bytes_of(const c10::Storage& storage) {
  return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()))
      .set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
}

struct KeptTensor {
  at::Tensor tensor, data;  // data: an alias, which shows whether the tensor has got another storage
  bool trainable = false;
  at::Tensor gradient, sparse_gradient;
};

using namespace torch::optim;

/// Adds the tensors in an optimizer's state of a parameter; false for a type that LibTorch does not have.
bool collect(OptimizerParamState& state, std::vector<at::Tensor>& tensors) {
  const auto add = [&](const auto&... each) {
    (tensors.push_back(each), ...);
    return true;
  };
  if (auto* sgd = dynamic_cast<SGDParamState*>(&state)) return add(sgd->momentum_buffer());
  if (auto* adam = dynamic_cast<AdamParamState*>(&state))
    return add(adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq());
  if (auto* adam = dynamic_cast<AdamWParamState*>(&state))
    return add(adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq());
  if (auto* rms = dynamic_cast<RMSpropParamState*>(&state))
    return add(rms->square_avg(), rms->momentum_buffer(), rms->grad_avg());
  if (auto* ada = dynamic_cast<AdagradParamState*>(&state)) return add(ada->sum());
  if (auto* lbfgs = dynamic_cast<LBFGSParamState*>(&state)) {
    for (const auto* list : {&lbfgs->old_dirs(), &lbfgs->old_stps(), &lbfgs->ro()})
      for (const at::Tensor& each : *list) tensors.push_back(each);
    if (lbfgs->al()) tensors.insert(tensors.end(), lbfgs->al()->begin(), lbfgs->al()->end());
    return add(lbfgs->d(), lbfgs->H_diag(), lbfgs->prev_flat_grad());
  }
  return false;
}

template <typename Options>
bool assign(OptimizerOptions& to, const OptimizerOptions& from) {
  auto* mine = dynamic_cast<Options*>(&to);
  const auto* saved = dynamic_cast<const Options*>(&from);
  if (mine && saved) *mine = *saved;
  return mine && saved;
}

/// Writes into the same object, since a scheduler may point to it; one that has no learning rate is replaced.
void restore_options(OptimizerParamGroup& group, const OptimizerOptions& from) {
  OptimizerOptions& to = group.options();
  if (assign<SGDOptions>(to, from) || assign<AdamOptions>(to, from) || assign<AdamWOptions>(to, from) ||
      assign<RMSpropOptions>(to, from) || assign<AdagradOptions>(to, from) || assign<LBFGSOptions>(to, from))
    return;
  if (const auto rate = learning_rate(from))
    to.set_lr(*rate);
  else
    group.set_options(from.clone());
}

}  // namespace

struct SavedState::Kept {
  std::map<const c10::StorageImpl*, std::pair<at::Tensor, at::Tensor>> storages;  // the bytes, and their copy
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<KeptTensor> tensors;
  std::vector<std::function<void()>> others, wrappers;
  std::vector<std::function<bool()>> unsettled;

  void keep_bytes(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const c10::Storage& storage = tensor.storage();
    if (storage.nbytes() == 0 || storages.contains(storage.unsafeGetStorageImpl())) return;
    at::Tensor bytes = bytes_of(storage);
    at::Tensor value = bytes.clone();
    storages.emplace(storage.unsafeGetStorageImpl(), std::pair(std::move(bytes), std::move(value)));
  }

  void keep_tensor(const at::Tensor& tensor) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    keep_bytes(tensor);
    KeptTensor kept{.tensor = tensor, .data = tensor.detach(), .trainable = tensor.requires_grad()};
    if (tensor.is_leaf() && tensor.grad().defined()) {
      kept.gradient = tensor.grad();
      if (kept.gradient.has_storage())
        keep_bytes(kept.gradient);
      else
        kept.sparse_gradient = kept.gradient.detach().clone();
    }
    tensors.push_back(std::move(kept));
  }
};

SavedState::SavedState() : kept_(std::make_unique<Kept>()) {
  save(at::detail::getDefaultCPUGenerator());
  if (at::globalContext().hasCUDA()) {
    for (int device = 0; device < at::globalContext().getAcceleratorHooksInterface(at::kCUDA).deviceCount(); ++device)
      save(at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device))));
  }
}

SavedState::~SavedState() = default;

void SavedState::save_later(std::function<void()> restore) { kept_->others.push_back(std::move(restore)); }

void SavedState::restore() const {
  for (const auto& each : kept_->wrappers) each();
  rewind();
}

bool SavedState::buckets_are_unsettled() const {
  return std::ranges::any_of(kept_->unsettled, [](const auto& is_unsettled) { return is_unsettled(); });
}

void SavedState::rewind() const {
  const at::NoGradGuard no_grad;
  // Handles come before contents, so that contents go into the saved memory.
  for (const auto& each : kept_->others) each();
  for (const KeptTensor& each : kept_->tensors) {
    if (each.tensor.unsafeGetTensorImpl() == nullptr) continue;
    if (each.tensor.has_storage() && !each.tensor.is_alias_of(each.data)) each.tensor.set_data(each.data);
    if (!each.tensor.is_leaf()) continue;
    if (each.tensor.requires_grad() != each.trainable) each.tensor.set_requires_grad(each.trainable);
    each.tensor.mutable_grad() = each.sparse_gradient.defined() ? each.sparse_gradient.clone() : each.gradient;
  }
  for (const auto& [storage, bytes] : kept_->storages) bytes.first.copy_(bytes.second);
}

void SavedState::save(const torch::nn::Module& module) {
  // The module itself is left out: it may not be owned by a shared_ptr.
  auto& self = const_cast<torch::nn::Module&>(module);
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes;
  for (const auto& each : module.modules(/*include_self=*/false)) modes.emplace_back(each, each->is_training());
  save_later([&self, mode = module.is_training(), modes = std::move(modes)] {
    if (self.is_training() != mode) self.train(mode);
    for (const auto& [each, before] : modes)
      if (each->is_training() != before) each->train(before);
  });
  for (const at::Tensor& each : module.parameters()) kept_->keep_tensor(each);
  for (const at::Tensor& each : module.buffers()) kept_->keep_tensor(each);
}

void SavedState::save(const ddp::DistributedModule& wrapper) {
  save(static_cast<const torch::nn::Module&>(*wrapper.module()));
  if (wrapper.steps() > 0)
    kept_->unsettled.emplace_back([wrapper] {
      const std::shared_ptr<c10d::Reducer> reducer = wrapper.reducer();
      return reducer && reducer->should_rebuild_buckets();
    });
  const ddp::Progress progress = ddp::Inspection(wrapper).progress();
  save_later([wrapper, progress] { ddp::Inspection(wrapper).set_progress(progress, /*steps=*/false); });
  kept_->wrappers.push_back([wrapper, progress] {
    // In its first steps the wrapper learns the order of gradients and lays out its buckets. It has to do that again.
    if (progress.steps == 0 && wrapper.steps() > 0) wrapper.reset();
    ddp::Inspection(wrapper).set_progress(progress);
  });
}

void SavedState::save(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& each : group.params()) kept_->keep_tensor(each);

  using States = std::unordered_map<void*, std::unique_ptr<OptimizerParamState>>;
  const auto states = std::make_shared<States>();
  std::vector<at::Tensor> tensors;
  const bool known = std::all_of(optimizer.state().begin(), optimizer.state().end(), [&](const auto& each) {
    if (!collect(*each.second, tensors)) return false;
    states->emplace(each.first, each.second->clone());
    return true;
  });
  if (!known) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    save_later([&optimizer, saved = stream.str()] {
      std::istringstream from(saved);
      torch::serialize::InputArchive input;
      input.load_from(from);
      optimizer.load(input);
    });
    return;
  }
  for (const at::Tensor& each : tensors) kept_->keep_tensor(each);
  const auto groups = std::make_shared<std::vector<OptimizerParamGroup>>(optimizer.param_groups());
  save_later([&optimizer, states, groups] {
    auto& now = optimizer.param_groups();
    while (now.size() > groups->size()) now.pop_back();
    for (size_t g = 0; g < now.size(); ++g) {
      now[g].params() = (*groups)[g].params();
      if (now[g].has_options() && (*groups)[g].has_options()) restore_options(now[g], (*groups)[g].options());
    }
    optimizer.state().clear();
    for (const auto& [key, state] : *states) optimizer.state().emplace(key, state->clone());
  });
}

void SavedState::save(at::Tensor& tensor) {
  save_later([&tensor, before = tensor] { tensor = before; });
  kept_->keep_tensor(tensor);
}

void SavedState::save(const at::Tensor& tensor) { kept_->keep_tensor(tensor); }

void SavedState::save(const at::Generator& generator) {
  at::Generator same = generator;
  at::Tensor state;
  {
    const std::lock_guard lock(same.mutex());
    state = same.get_state().clone();
  }
  save_later([same, state]() mutable {
    const std::lock_guard lock(same.mutex());
    same.set_state(state);
  });
}

}  // namespace lockstep::inspect
