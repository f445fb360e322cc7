#include "ddp/sync_batch_norm.h"

#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <ostream>
#include <unordered_map>

#include "ddp/hooks/default_group.h"
#include "protocol/error.h"

namespace lockstep::ddp {
namespace {

using torch::Tensor;

std::vector<int64_t> all_but_channels(const Tensor& tensor) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < tensor.dim(); ++d) dims.push_back(d);
  return dims;
}

Tensor per_channel(const Tensor& values, const Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[1] = -1;
  return values.view(shape);
}

struct Statistics {
  Tensor mean, var;  // of each channel over all ranks, biased
  double count;      // elements of a channel, over all ranks
};

// Chan, Golub, LeVeque: means and sums of squares about the mean of parts give those of the whole, without
// cancellation.
Statistics statistics_of_all_ranks(const Tensor& input, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const int64_t channels = input.size(1);
  const double count = static_cast<double>(input.numel()) / static_cast<double>(channels);
  auto mine = torch::zeros({2 * channels + 1}, input.options().dtype(torch::kDouble).requires_grad(false));
  if (input.numel() > 0) {
    const auto values = input.scalar_type() == torch::kDouble ? input : input.to(torch::kFloat);
    const auto [var, mean] = torch::var_mean(values, all_but_channels(input), /*unbiased=*/false);
    mine.narrow(0, 0, channels).copy_(mean);
    mine.narrow(0, channels, channels).copy_(var);
    mine[2 * channels] = count;
  }
  std::vector<std::vector<Tensor>> gathered(1);
  for (int rank = 0; rank < group->getSize(); ++rank) gathered[0].push_back(torch::empty_like(mine));
  std::vector<Tensor> sent{mine};
  group->allgather(gathered, sent)->wait();

  const auto all = torch::stack(gathered[0]);  // [ranks, 2C + 1]
  const auto counts = all.narrow(1, 2 * channels, 1);
  const auto means = all.narrow(1, 0, channels);
  const auto vars = all.narrow(1, channels, channels);
  const auto total = counts.sum();
  const auto mean = (means * counts).sum(0) / total;
  const auto var = ((vars + (means - mean).square()) * counts).sum(0) / total;
  const auto type = input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  return {mean.to(type), var.to(type), total.item<double>()};
}

// Backward is that of x̂ = (x − mean) / σ, y = w·x̂ + b, where mean and σ depend on every x of every rank:
//   dx = w/σ · (dy − Σdy/n − x̂ · Σ(dy·x̂)/n), with sums over all ranks;
//   dw = Σ dy·x̂ and db = Σ dy of this rank alone, since the Reducer sums them over ranks.
struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input,
                        const std::optional<Tensor>& given_weight, const std::optional<Tensor>& given_bias,
                        const Tensor& mean, const Tensor& var, double count, double eps,
                        const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const Tensor weight = given_weight.value_or(Tensor()), bias = given_bias.value_or(Tensor());
    context->save_for_backward({input, weight, mean, var});
    context->saved_data["count"] = count;
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = group;
    if (input.numel() == 0) return torch::empty_like(input);
    // In a module of 16-bit floats weight and bias are 16-bit, too, and native_batch_norm needs them in the type of the
    // statistics.
    const auto cast = [&](const Tensor& tensor) { return tensor.defined() ? tensor.to(mean.scalar_type()) : tensor; };
    return std::get<0>(
        torch::native_batch_norm(input, cast(weight), cast(bias), mean, var, /*training=*/false, /*momentum=*/0, eps));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3];
    const double count = context->saved_data["count"].toDouble();
    const double eps = context->saved_data["eps"].toDouble();
    const auto group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    const int64_t channels = input.size(1);

    const auto invstd = (var + eps).rsqrt();
    Tensor sums = torch::zeros({2, channels}, mean.options());  // Σdy, Σ(dy·x̂)
    Tensor gradient, dw, db;
    if (input.numel() > 0) {
      gradient = gradients[0].to(mean.scalar_type());
      const auto normalised = (input.to(mean.scalar_type()) - per_channel(mean, input)) * per_channel(invstd, input);
      const auto dims = all_but_channels(input);
      sums[0] = gradient.sum(dims);
      sums[1] = (gradient * normalised).sum(dims);
    }
    if (weight.defined()) {
      db = sums[0].to(weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
      dw = sums[1].to(weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
    Tensor dx;
    if (context->needs_input_grad(0)) {
      if (group->getSize() > 1) {
        std::vector<Tensor> tensors{sums};
        group->allreduce(tensors)->wait();
      }
      if (input.numel() > 0) {
        const auto scale = weight.defined() ? weight.to(mean.scalar_type()) * invstd : invstd;
        const auto slope = scale * invstd * sums[1] / count;  // of dx over x − mean
        dx = (gradient * per_channel(scale, input) - input.to(mean.scalar_type()) * per_channel(slope, input) +
              per_channel(slope * mean - scale * sums[0] / count, input))
                 .to(input.scalar_type());
      } else {
        dx = torch::empty_like(input);
      }
    }
    return {dx, dw, db, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// BatchNorms that were converted, by their weight (or their running mean, if they have no weight): the arguments of
// torch::batch_norm identify them. They are weak, so that a new tensor at an old address is not taken for the old one.
struct Converted {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  std::weak_ptr<torch::nn::Module> norm;
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // null: the default group
};
std::mutex& converted_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::unordered_map<const c10::TensorImpl*, Converted>& converted() {
  static std::unordered_map<const c10::TensorImpl*, Converted> all;
  return all;
}
std::atomic<int64_t> conversions = 0;

std::optional<Converted> find_converted(const Tensor& weight, const Tensor& running_mean) {
  const auto* key = weight.defined() ? weight.unsafeGetTensorImpl() : running_mean.unsafeGetTensorImpl();
  const std::lock_guard lock(converted_mutex());
  const auto entry = converted().find(key);
  if (entry == converted().end() || entry->second.tensor.expired()) return std::nullopt;
  return entry->second;
}

template <class F>
void for_each_batch_norm(const torch::nn::Module& module, const F& visit) {
  for (const auto& item : module.named_modules()) {
    const auto visit_if = [&](const auto* norm) {
      if (norm) visit(item, norm->weight, norm->running_mean);
    };
    visit_if(item.value()->as<torch::nn::BatchNorm1d>());
    visit_if(item.value()->as<torch::nn::BatchNorm2d>());
    visit_if(item.value()->as<torch::nn::BatchNorm3d>());
  }
}

// torch::nn::BatchNorm2d::forward is not virtual and its holder has a fixed type, so a module inside a user's struct
// can't be exchanged. The function that it calls can: a dispatch key that nothing else uses is active within the scope,
// and leads torch::batch_norm here.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

Tensor dispatched_batch_norm(const Tensor& input, const std::optional<Tensor>& weight,
                             const std::optional<Tensor>& bias, const std::optional<Tensor>& running_mean,
                             const std::optional<Tensor>& running_var, bool training, double momentum, double eps,
                             bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard not_again(kKey);
  const Tensor none;
  if (training) {
    // Without running statistics `training` is set in evaluation, too, which a rank may run alone.
    const auto converted = find_converted(weight.value_or(none), running_mean.value_or(none));
    const auto norm = converted ? converted->norm.lock() : nullptr;
    if (converted && (!norm || norm->is_training())) {
      return sync_batch_norm(input, weight.value_or(none), bias.value_or(none), running_mean.value_or(none),
                             running_var.value_or(none), momentum, eps,
                             converted->group ? converted->group : default_group());
    }
  }
  return torch::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) { library.impl("batch_norm", dispatched_batch_norm); }

}  // namespace

Tensor sync_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, double momentum, double eps,
                       const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (input.dim() < 2) {
    throw ArgumentError("SyncBatchNorm takes [N, C, …], two dimensions at least; this input has " +
                        std::to_string(input.dim()));
  }
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = statistics_of_all_ranks(input, group);
    if (statistics.count < 2) {
      throw ArgumentError("SyncBatchNorm needs more than one value per channel over all ranks in training");
    }
    if (running_mean.defined()) {
      running_mean.mul_(1 - momentum).add_(statistics.mean, momentum);
      running_var.mul_(1 - momentum).add_(statistics.var, momentum * statistics.count / (statistics.count - 1));
    }
  }
  // An undefined tensor can't be the input of a function; an optional without a value can.
  const auto optional = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return SyncBatchNormFunction::apply(input, optional(weight), optional(bias), statistics.mean, statistics.var,
                                      statistics.count, eps, group);
}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& given,
                                     c10::intrusive_ptr<c10d::ProcessGroup> group)
    : options(given), group_(std::move(group)) {
  SyncBatchNormImpl::reset();
}

void SyncBatchNormImpl::reset() {
  const int64_t channels = options.num_features();
  weight = register_parameter("weight", options.affine() ? torch::ones(channels) : Tensor(), options.affine());
  bias = register_parameter("bias", options.affine() ? torch::zeros(channels) : Tensor(), options.affine());
  const bool tracks = options.track_running_stats();
  running_mean = register_buffer("running_mean", tracks ? torch::zeros(channels) : Tensor());
  running_var = register_buffer("running_var", tracks ? torch::ones(channels) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", tracks ? torch::tensor(0, torch::kLong) : Tensor());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ddp::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  options.momentum() ? stream << *options.momentum() : stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
}

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  const bool tracks = options.track_running_stats();
  if (!is_training()) {
    return torch::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/!tracks, 0, options.eps(),
                             false);
  }
  double momentum = options.momentum().value_or(0);
  if (tracks) {
    num_batches_tracked += 1;
    if (!options.momentum()) momentum = 1.0 / num_batches_tracked.item<double>();  // the mean of all batches
  }
  return sync_batch_norm(input, weight, bias, running_mean, running_var, momentum, options.eps(),
                         group_ ? group_ : default_group());
}

int convert_sync_batchnorm(torch::nn::Module& module, c10::intrusive_ptr<c10d::ProcessGroup> group) {
  int count = 0;
  for_each_batch_norm(module, [&](const auto& item, const Tensor& weight, const Tensor& running_mean) {
    const Tensor& known_by = weight.defined() ? weight : running_mean;
    if (!known_by.defined()) {
      throw ArgumentError(
          "BatchNorm " + item.key() +
          " has neither weights nor running statistics to identify it by. Use ddp::SyncBatchNorm instead");
    }
    const std::lock_guard lock(converted_mutex());
    auto& all = converted();
    std::erase_if(all, [](const auto& entry) { return entry.second.tensor.expired(); });
    all.insert_or_assign(
        known_by.unsafeGetTensorImpl(),
        Converted{c10::weak_intrusive_ptr<c10::TensorImpl>(known_by.getIntrusivePtr()), item.value(), group});
    ++count;
  });
  ++conversions;
  return count;
}

namespace detail {

int64_t batchnorm_conversions() { return conversions; }

bool has_converted_batchnorm(const torch::nn::Module& module) {
  bool has = false;
  for_each_batch_norm(module, [&](const auto&, const Tensor& weight, const Tensor& running_mean) {
    has = has || ((weight.defined() || running_mean.defined()) && find_converted(weight, running_mean));
  });
  return has;
}

SyncBatchNormScope::SyncBatchNormScope() : before_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}
SyncBatchNormScope::~SyncBatchNormScope() { c10::impl::tls_set_dispatch_key_included(kKey, before_); }

}  // namespace detail
}  // namespace lockstep::ddp
