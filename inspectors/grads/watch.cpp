#include "inspectors/grads/watch.h"

#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "inspectors/fingerprint/kernels.h"
#include "inspectors/trace/parameter_trace.h"
#include "inspectors/trace/step_reductions.h"

namespace lockstep::inspect {

using torch::autograd::PostAccumulateGradHook;
using Clock = std::chrono::steady_clock;

class GradObserver : public std::enable_shared_from_this<GradObserver> {
 public:
  explicit GradObserver(const GradientSubject& subject) : wrapper_(subject.wrapper) {
    for (const GradientOwner& each : subject.parameters)
      if (each.parameter.requires_grad() && each.parameter.is_leaf()) parameters_.push_back({.tensor = each.parameter});
    for (size_t i = 0; i < parameters_.size(); ++i) indices_[parameters_[i].tensor.unsafeGetTensorImpl()] = i;
  }

  void attach();
  void detach();
  void before_accumulation(size_t index);
  void after_accumulation(size_t index);
  GradWatch::Cost cost() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }
  /// Fills in the gradients of `subject` that it observes, and sets `known` for their parameters.
  void report_to(const GradientSubject& subject, ObservedGradients& result, std::vector<bool>& known) const;

 private:
  struct Observed {
    at::Tensor tensor;
    int64_t step = 0;  // of its last gradient
    uint64_t trace = 0;  // of the parameter, at that time
    uint64_t collectives = 0;  // the number that had begun at that time
    ObservedGradient last;
    unsigned hook = 0;  // of the tensor, before accumulation
    bool adds_to_used = false;
    std::vector<Hash> hashes, hashes_before;  // of each micro-batch of this step and of the step before
    bool same = false;  // all hashes of this step are those of the step before
    int64_t same_before = 0;
  };

  void pass_begins();

  mutable std::mutex mutex_;  // backward of several devices has several threads
  std::vector<Observed> parameters_;
  std::unordered_map<const void*, size_t> indices_;  // by tensor
  std::optional<ddp::DistributedModule> wrapper_;
  int64_t step_ = 0;
  bool in_pass_ = false;
  bool sync_wanted_ = true;
  int64_t passes_ = 0;  // in this step
  GradWatch::Cost cost_;
};

namespace {

/// So many micro-batches of a step are compared with those of the step before.
constexpr size_t kMicroBatches = 64;

/// Runs when a gradient has been accumulated, before the hooks of the accumulating node, such as the Reducer's.
class Hook : public PostAccumulateGradHook {
 public:
  Hook(std::weak_ptr<GradObserver> observer, size_t index, std::unique_ptr<PostAccumulateGradHook> next)
      : observer_(std::move(observer)), index_(index), next_(std::move(next)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    if (const auto observer = observer_.lock()) observer->after_accumulation(index_);
    if (next_) (*next_)(parameter);
  }
  bool belongs_to(const GradObserver& observer) const { return observer_.lock().get() == &observer; }
  std::unique_ptr<PostAccumulateGradHook> take_next() { return std::move(next_); }

 private:
  std::weak_ptr<GradObserver> observer_;
  size_t index_;
  std::unique_ptr<PostAccumulateGradHook> next_;
};

struct Observers {
  std::mutex mutex;
  std::vector<std::weak_ptr<GradObserver>> all;  // in the order of construction
};

// Never destroyed, since a watch with static storage may be destroyed later.
Observers& observers() {
  static auto* all = new Observers;
  return *all;
}

/// Returns pseudo-random signs, so that sums do not vanish if rows or columns add up to zero.
double sign(int64_t index) { return kernels::mix(static_cast<uint64_t>(index) + 1) & 1 ? 1.0 : -1.0; }

/// Whether every element is exactly zero. The sketch shows most gradients that are not.
bool is_zero(const at::Tensor& gradient) {
  const Sketch sketch = sketch_of(gradient);
  if (std::any_of(sketch.begin(), sketch.end(), [](double each) { return each != 0; })) return false;
  const Fingerprint mark = gradient_fingerprints({gradient})[0];
  return mark.abs_max == 0 && mark.nan_count + mark.inf_count == 0;
}

}  // namespace

Sketch sketch_of(const at::Tensor& tensor) {
  Sketch sketch{};
  if (!tensor.defined() || tensor.layout() != at::kStrided || !at::isFloatingType(tensor.scalar_type()) ||
      tensor.element_size() < 2)
    return sketch;
  const at::NoGradGuard no_grad;
  const int64_t size = tensor.numel();
  constexpr int64_t kBlocks = std::tuple_size_v<Sketch>, kBlock = 64;
  const auto begin_of = [&](int64_t block) {
    return size <= kBlocks * kBlock ? block * size / kBlocks : block * (size - kBlock) / (kBlocks - 1);
  };
  const auto end_of = [&](int64_t block) {
    return size <= kBlocks * kBlock ? (block + 1) * size / kBlocks : begin_of(block) + kBlock;
  };
  const at::Tensor plain = tensor.detach();
  at::Tensor flat = plain.is_non_overlapping_and_dense() ? plain.as_strided({size}, {1}) : plain.reshape({-1});
  if (!flat.device().is_cpu()) {
    std::vector<at::Tensor> blocks;
    for (int64_t b = 0; b < kBlocks; ++b) blocks.push_back(flat.slice(0, begin_of(b), end_of(b)));
    flat = at::cat(blocks).cpu();
  }
  const bool gathered = !plain.device().is_cpu();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "sketch_of", [&] {
    const auto* data = flat.const_data_ptr<scalar_t>();
    int64_t next = 0;
    for (int64_t b = 0; b < kBlocks; ++b) {
      double sum = 0;
      for (int64_t i = begin_of(b); i < end_of(b); ++i)
        sum += sign(i) * static_cast<double>(data[gathered ? next++ : i]);
      sketch[static_cast<size_t>(b)] = sum;
    }
  });
  return sketch;
}

void GradObserver::attach() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].hook = parameters_[i].tensor.register_hook([weak = weak_from_this(), i](const at::Tensor&) {
      if (const auto observer = weak.lock()) observer->before_accumulation(i);
    });
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameters_[i].tensor);
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<Hook>(weak_from_this(), i, std::move(slot)));
  }
}

void GradObserver::detach() {
  for (const Observed& each : parameters_) {
    try {
      each.tensor.remove_hook(each.hook);
    } catch (const c10::Error&) {  // already removed with the graph, since the parameter was replaced
    }
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(each.tensor);
    // A hook that was set later comes first and owns this one, which then stays without an observer.
    if (auto* hook = dynamic_cast<Hook*>(slot.get()); hook && hook->belongs_to(*this)) slot = hook->take_next();
  }
}

void GradObserver::pass_begins() {
  in_pass_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    self->in_pass_ = false;
  });
  const bool changed = std::any_of(parameters_.begin(), parameters_.end(), [&](const Observed& each) {
    return each.step == step_ && trace_of(each.tensor) != each.trace;
  });
  if (step_ == 0 || changed) ++step_, passes_ = 0;
  ++passes_;
  if (wrapper_) sync_wanted_ = wrapper_->require_backward_grad_sync();
}

void GradObserver::before_accumulation(size_t index) {
  const auto start = Clock::now();
  const std::lock_guard lock(mutex_);
  Observed& observed = parameters_[index];
  const at::Tensor& gradient = observed.tensor.grad();
  observed.adds_to_used =
      gradient.defined() && observed.step > 0 && trace_of(observed.tensor) != observed.trace && !is_zero(gradient);
  cost_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

void GradObserver::after_accumulation(size_t index) {
  const auto start = Clock::now();
  const std::lock_guard lock(mutex_);
  Observed& observed = parameters_[index];
  // The end of a backward is not reported if it threw, so a changed parameter also begins a new pass.
  if (!in_pass_ || (observed.step == step_ && trace_of(observed.tensor) != observed.trace)) pass_begins();
  const at::Tensor& gradient = observed.tensor.grad();
  if (!gradient.defined()) return;
  if (observed.step != step_) {
    observed.same_before = observed.same ? observed.same_before + 1 : 0;
    observed.same = true;
    observed.hashes_before = std::exchange(observed.hashes, {});
    if (observed.step != step_ - 1) observed.hashes_before.clear();
    observed.step = step_;
    observed.last.on_used = observed.adds_to_used;
  }
  observed.trace = trace_of(observed.tensor);
  observed.collectives = collectives_begun();
  observed.last.mark = gradient_fingerprints({gradient})[0];
  observed.last.sketch = sketch_of(gradient);
  const size_t micro_batch = observed.hashes.size();
  const Hash& hash = observed.last.mark.hash;
  if (micro_batch >= observed.hashes_before.size() || observed.hashes_before[micro_batch] != hash)
    observed.same = false;
  if (micro_batch < kMicroBatches) observed.hashes.push_back(hash);
  ++cost_.gradients;
  cost_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

void GradObserver::report_to(const GradientSubject& subject, ObservedGradients& result,
                             std::vector<bool>& known) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < subject.parameters.size(); ++i) {
    const auto found = indices_.find(subject.parameters[i].parameter.unsafeGetTensorImpl());
    if (found == indices_.end()) continue;
    known[i] = true;
    result.steps = step_;
    result.sync_wanted = sync_wanted_;
    result.passes = passes_;
    const Observed& observed = parameters_[found->second];
    if (observed.step != step_ || step_ == 0) continue;
    ObservedGradient last = observed.last;
    last.same_for = observed.same ? observed.same_before + 1 : 0;
    last.stepped = trace_of(observed.tensor) != observed.trace;
    last.collective_since = collectives_begun() != observed.collectives;
    result.gradients[i] = last;
  }
}

GradWatch::GradWatch(const GradientSubject& subject) : observer_(std::make_shared<GradObserver>(subject)) {
  observer_->attach();
  Observers& all = observers();
  const std::lock_guard lock(all.mutex);
  all.all.push_back(observer_);
}

GradWatch::~GradWatch() {
  if (!observer_) return;
  observer_->detach();
  Observers& all = observers();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.all, [&](const auto& each) { return each.expired() || each.lock() == observer_; });
}

GradWatch::Cost GradWatch::cost() const { return observer_->cost(); }

std::optional<ObservedGradients> gradients_seen(const GradientSubject& subject) {
  std::vector<std::shared_ptr<GradObserver>> all;
  {
    const std::lock_guard lock(observers().mutex);
    for (const auto& each : observers().all)
      if (auto observer = each.lock()) all.push_back(std::move(observer));
  }
  ObservedGradients observed;
  observed.gradients.resize(subject.parameters.size());
  std::vector<bool> known(subject.parameters.size());
  for (const auto& each : all) each->report_to(subject, observed, known);
  for (size_t i = 0; i < known.size(); ++i)
    if (!known[i] && subject.parameters[i].parameter.requires_grad()) return std::nullopt;
  if (std::none_of(known.begin(), known.end(), [](bool each) { return each; })) return std::nullopt;
  return observed;
}

}  // namespace lockstep::inspect
