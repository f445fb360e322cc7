#include "ddp/hooks/power_sgd.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "ddp/hooks/comm_hooks.h"
#include "protocol/error.h"

namespace lockstep::ddp {
namespace {

using torch::Tensor;

// Matrices of one shape, as `views` into the bucket, which are compressed together.
struct Batch {
  std::vector<Tensor> views;  // [n, m] each
  int64_t n, m, rank;
  int64_t count() const { return static_cast<int64_t>(views.size()); }
};

Tensor stacked(const Batch& batch) {
  return batch.count() == 1 ? batch.views[0].unsqueeze(0) : torch::stack(batch.views);
}

// Returns the parts of `flat` as [count, rows, rank], one a batch.
template <class Rows>
std::vector<Tensor> factors(const Tensor& flat, const std::vector<Batch>& batches, const Rows& rows) {
  std::vector<Tensor> parts;
  int64_t offset = 0;
  for (const auto& batch : batches) {
    const int64_t size = batch.count() * rows(batch) * batch.rank;
    parts.push_back(flat.narrow(0, offset, size).view({batch.count(), rows(batch), batch.rank}));
    offset += size;
  }
  return parts;
}

template <class Rows>
int64_t factor_elements(const std::vector<Batch>& batches, const Rows& rows) {
  int64_t size = 0;
  for (const auto& batch : batches) size += batch.count() * rows(batch) * batch.rank;
  return size;
}

void sum_over_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const Tensor& tensor) {
  if (tensor.numel() == 0) return;
  std::vector<Tensor> tensors{tensor};
  group->allreduce(tensors)->wait();
}

}  // namespace

namespace detail {

void orthogonalize(Tensor matrices, double epsilon) {
  const bool low_precision = matrices.scalar_type() == torch::kHalf || matrices.scalar_type() == torch::kBFloat16;
  const int64_t columns = matrices.size(2);
  if (columns > 2 && !low_precision) {
    matrices.copy_(std::get<0>(torch::linalg_qr(matrices)));
    return;
  }
  // Gram and Schmidt's method is used: QR does not take 16-bit floats, and is slower for one or two columns.
  for (int64_t i = 0; i < columns; ++i) {
    auto column = matrices.narrow(2, i, 1);
    const auto length = column.norm(2, {1}, /*keepdim=*/true).add_(epsilon);
    column.div_(length.masked_fill_(length == 0, 1));  // a column of zeros stays one
    if (i + 1 < columns) {
      auto rest = matrices.narrow(2, i + 1, columns - i - 1);
      rest.sub_((column * rest).sum({1}, /*keepdim=*/true) * column);
    }
  }
}

}  // namespace detail

PowerSGDState::PowerSGDState(PowerSGDOptions options)
    : options_(std::move(options)), first_compressed_(options_.start_powerSGD_iter()) {
  if ((options_.use_error_feedback() || options_.warm_start()) && options_.start_powerSGD_iter() <= 1) {
    throw ArgumentError(
        "start_powerSGD_iter must be 2 or more with error feedback or warm start: DistributedDataParallel rebuilds its "
        "buckets after the first step, and what PowerSGD keeps of the old ones would not fit");
  }
  if (options_.matrix_approximation_rank() < 1) throw ArgumentError("matrix_approximation_rank must be 1 or more");
}

PowerSGDState::CompressionStats PowerSGDState::compression_stats() const {
  return {elements_after_ ? static_cast<double>(elements_before_) / static_cast<double>(elements_after_) : 0,
          elements_before_, elements_after_};
}

GradFuture PowerSGDState::reduce(GradBucket& bucket, bool as_one_square_matrix) {
  const auto group = detail::group_or_default(options_.process_group());
  if (std::exchange(restarted_, false)) {
    iter_ = detail::least_over_ranks(group, iter_, bucket.getBuffer().device());
    const bool remembers = options_.use_error_feedback() || options_.warm_start();
    first_compressed_ = std::max(options_.start_powerSGD_iter(), remembers ? iter_ + 2 : iter_);
  }
  const bool last = bucket.isLast();
  const bool in_full = iter_ < first_compressed_ || bucket.getBuffer().is_sparse();
  const auto result = in_full ? detail::mean_over_ranks(group, bucket.getBuffer())
                              : detail::completed(compress(bucket, as_one_square_matrix));
  if (last) ++iter_;
  return result;
}

void PowerSGDState::restart() {
  memory_.clear();
  restarted_ = true;
}

// Each collective here is waited for: started from callbacks, those of two buckets could come in another order on
// another rank.
Tensor PowerSGDState::compress(GradBucket& bucket, bool as_one_square_matrix) {
  const torch::NoGradGuard no_grad;
  const auto group = detail::group_or_default(options_.process_group());
  auto buffer = bucket.getBuffer();
  const int64_t length = buffer.numel();
  auto& memory = memory_[bucket.getIndex()];

  Tensor work = buffer;  // what is approximated, and then holds the approximation
  if (as_one_square_matrix) {
    const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(length))));
    work = torch::zeros({side * side}, buffer.options());
    work.narrow(0, 0, length).copy_(buffer);
  }
  Tensor given;
  if (options_.use_error_feedback()) {
    if (memory.error.defined()) work.add_(memory.error);
    given = work.clone();
  }

  // Matrices that are worth compressing go into `batches`, the rest into `in_full`.
  std::vector<Batch> batches;
  std::vector<Tensor> in_full;
  const auto add_matrix = [&](const Tensor& view) {
    const int64_t n = view.size(0), m = view.size(1);
    if (options_.batch_tensors_with_same_shape()) {
      for (auto& batch : batches) {
        if (batch.n == n && batch.m == m) return batch.views.push_back(view);
      }
    }
    batches.push_back({{view}, n, m, std::min({n, m, options_.matrix_approximation_rank()})});
  };
  if (as_one_square_matrix) {
    const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(work.numel()))));
    add_matrix(work.view({side, side}));
  } else {
    for (const auto& gradient : bucket.getGradients()) {
      const int64_t n = gradient.dim() > 1 ? gradient.size(0) : 0, m = n ? gradient.numel() / n : 0;
      const auto sent =
          static_cast<double>((n + m) * options_.matrix_approximation_rank()) * options_.min_compression_rate();
      if (gradient.dim() > 1 && gradient.is_contiguous() && sent < static_cast<double>(n * m)) {
        add_matrix(gradient.view({n, m}));
      } else {
        in_full.push_back(gradient);
      }
    }
  }
  const auto rows_p = [](const Batch& batch) { return batch.n; };
  const auto rows_q = [](const Batch& batch) { return batch.m; };

  if (!in_full.empty()) {
    std::vector<Tensor> flattened;
    for (const auto& gradient : in_full) flattened.push_back(gradient.reshape({-1}));
    auto flat = torch::cat(flattened).div_(group->getSize());
    sum_over_ranks(group, flat);
    int64_t offset = 0;
    for (const auto& gradient : in_full) {
      gradient.copy_(flat.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
      offset += gradient.numel();
    }
    elements_after_ += flat.numel();
  }

  const bool fresh = !options_.warm_start() || !memory.q.defined();
  if (fresh) {
    memory.p = torch::empty({factor_elements(batches, rows_p)}, work.options());
    memory.q = torch::empty({factor_elements(batches, rows_q)}, work.options());
  }
  const auto p = factors(memory.p, batches, rows_p), q = factors(memory.q, batches, rows_q);
  // These columns are drawn again. A column of zeros, which a step of zero gradients leaves, would stay zero: P = M Q,
  // and the next Q = Mᵀ P. They are the same on every rank, since Q is.
  std::vector<Tensor> lost;
  bool draws = fresh;
  for (const auto& factor : q) {
    if (fresh) break;
    const auto length = factor.norm(2, {1}, /*keepdim=*/true);
    lost.push_back(length.eq(0).logical_or_(length.isfinite().logical_not_()));
    draws = draws || lost.back().any().item<bool>();
  }
  if (draws) {
    // The numbers are the same on every rank, and differ in every step and bucket.
    const uint64_t seed = options_.random_seed();
    std::seed_seq numbers{seed, seed >> 32, static_cast<uint64_t>(iter_), static_cast<uint64_t>(bucket.getIndex())};
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(std::mt19937_64(numbers)());
    for (size_t i = 0; i < q.size(); ++i) {
      const auto random = torch::randn(q[i].sizes(), generator).to(q[i].options());
      fresh ? q[i].copy_(random) : q[i].copy_(torch::where(lost[i], random, q[i]));
    }
  }
  // The last step's Q, too: its columns are as long as the gradient was, and P = M Q would soon overflow 16-bit floats.
  for (const auto& factor : q) detail::orthogonalize(factor, options_.orthogonalization_epsilon());
  for (size_t i = 0; i < batches.size(); ++i) p[i].copy_(torch::bmm(stacked(batches[i]), q[i]));
  sum_over_ranks(group, memory.p);
  for (size_t i = 0; i < batches.size(); ++i) {
    detail::orthogonalize(p[i], options_.orthogonalization_epsilon());
    q[i].copy_(torch::bmm(stacked(batches[i]).transpose(1, 2), p[i]));
  }
  sum_over_ranks(group, memory.q);
  memory.q.div_(group->getSize());
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto approximation = torch::bmm(p[i], q[i].transpose(1, 2));
    for (int64_t k = 0; k < batches[i].count(); ++k) batches[i].views[k].copy_(approximation[k]);
  }
  elements_before_ += length;
  elements_after_ += memory.p.numel() + memory.q.numel();

  // The error of a NaN or Inf would otherwise come back in every later step.
  if (options_.use_error_feedback()) memory.error = given.sub_(work).nan_to_num_(0, 0, 0);
  if (as_one_square_matrix) buffer.copy_(work.narrow(0, 0, length));
  return buffer;
}

CommHook powerSGD_hook(const std::shared_ptr<PowerSGDState>& state) {
  return CommHook(
      "powerSGD_hook", [state](GradBucket& bucket) { return state->reduce(bucket, false); },
      [state] { state->restart(); });
}

CommHook batched_powerSGD_hook(const std::shared_ptr<PowerSGDState>& state) {
  return CommHook(
      "batched_powerSGD_hook", [state](GradBucket& bucket) { return state->reduce(bucket, true); },
      [state] { state->restart(); });
}

}  // namespace lockstep::ddp
