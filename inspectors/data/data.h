// data checks that the ranks divide the samples as data-parallel training needs it, by the indices that each reads in
// an epoch. It finds samples that two ranks read or none reads, unequal numbers of batches (a rank with one more waits
// forever in its all_reduce), the same order on all ranks, and a sampler without set_epoch for the new epoch.
//
//   auto report = inspect::data(sampler, inspect::DataOptions().size(dataset_size).batch_size(64));  // on every rank
//   inspect::data(indices, "indices");          // a tensor or vector of indices, or one for each batch
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <vector>

#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

struct DataOptions : InspectOptionsOf<DataOptions> {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_FIELD
#include "inspectors/options/data.def"
};

/// The samples that a rank reads in an epoch.
struct SampleOrder {
  std::vector<int64_t> samples;
  std::optional<std::vector<int64_t>> batches;  // their sizes, if the object has batches
  std::optional<int64_t> reported_epoch;  // by a sampler with set_epoch
  std::optional<int64_t> worker_seed;  // with which a loader's worker processes begin the epoch, if it has any
  /// Returns the order of another epoch, for a sampler with set_epoch. Draws no random numbers.
  std::function<std::vector<int64_t>(int64_t epoch)> of_epoch;
};

struct DataNumbers {
  std::vector<int64_t> samples;  // that each rank reads, by rank index
  std::vector<int64_t> batches;  // of each rank; empty if they are not known
  int64_t distinct = 0;  // samples over all ranks
  int64_t shared = 0;  // samples that more than one rank reads
  int64_t padding = 0;  // reads that a distributed sampler repeats so that all ranks have the same number
  std::optional<int64_t> omitted;  // samples of the dataset that no rank reads; unset if its size is not known
};

struct DataReport : Report, DataNumbers {};

namespace detail {

template <typename T>
concept Sampler = requires(T& sampler) {
  sampler.reset(std::nullopt);
  { *sampler.next(size_t{1}) } -> std::ranges::range;
};
template <typename T>
concept WithEpoch = requires(T& sampler) {
  sampler.set_epoch(size_t{0});
  { sampler.epoch() } -> std::convertible_to<int64_t>;
};
/// Leaves out characters and bool, which are integral types: text and masks are no lists of indices.
template <typename T>
concept Index = std::integral<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                !std::same_as<T, char16_t> && !std::same_as<T, char32_t> && !std::same_as<T, bool>;
template <typename T>
concept Integers = std::ranges::range<T> && Index<std::ranges::range_value_t<T>>;
template <typename T>
concept TextOrMask = std::ranges::range<T> && std::integral<std::ranges::range_value_t<T>> && !Integers<T>;
template <typename T>
concept PointsToSampler = requires(T& pointer) {
  { *pointer } -> Sampler;
};
template <typename T>
inline constexpr bool kNoSamples = false;

/// Restores the random number generators when it is destroyed.
class GeneratorsKept {
 public:
  GeneratorsKept();
  ~GeneratorsKept();
  GeneratorsKept(const GeneratorsKept&) = delete;
  GeneratorsKept& operator=(const GeneratorsKept&) = delete;

 private:
  std::shared_ptr<void> saved_;
};

/// Restores the epoch of a sampler when it is destroyed.
template <WithEpoch T>
class EpochKept {
 public:
  explicit EpochKept(T& sampler) : sampler_(sampler), before_(static_cast<size_t>(sampler.epoch())) {}
  ~EpochKept() { sampler_.set_epoch(before_); }
  EpochKept(const EpochKept&) = delete;
  EpochKept& operator=(const EpochKept&) = delete;

 private:
  T& sampler_;
  size_t before_;
};

[[noreturn]] void throw_endless(size_t samples);
void append(SampleOrder& order, const at::Tensor& indices);
std::vector<int64_t> numbers_of(const at::Tensor& indices);

/// Returns all samples of a copy, from its beginning.
template <Sampler T>
std::vector<int64_t> read_all(T copy) {
  constexpr size_t kMost = size_t{1} << 30;
  const GeneratorsKept guard;
  copy.reset(std::nullopt);
  std::vector<int64_t> samples;
  while (const auto batch = copy.next(1024)) {
    for (const auto index : *batch) samples.push_back(static_cast<int64_t>(index));
    if (samples.size() > kMost) throw_endless(samples.size());
  }
  return samples;
}

}  // namespace detail

/// Reads the order of a sampler (from a copy), of a tensor of indices (with one dimension, or with a row for each
/// batch), or of a range of indices, or of ranges or tensors of them, one for each batch. Local.
template <typename T>
SampleOrder samples_of(const T& object) {
  SampleOrder order;
  if constexpr (detail::Sampler<T>) {
    static_assert(std::copy_constructible<T>, "inspect::data reads a copy of a sampler, and this one can't be copied");
    order.samples = detail::read_all(object);
    if constexpr (detail::WithEpoch<T>) {
      order.reported_epoch = static_cast<int64_t>(object.epoch());
      order.of_epoch = [copy = object](int64_t epoch) mutable {
        const detail::EpochKept<T> kept(copy);  // copies may share their epoch
        copy.set_epoch(static_cast<size_t>(epoch));
        return detail::read_all(copy);
      };
    }
  } else if constexpr (std::derived_from<T, at::Tensor>) {
    detail::append(order, object);
  } else if constexpr (detail::Integers<T>) {
    for (const auto index : object) order.samples.push_back(static_cast<int64_t>(index));
  } else if constexpr (detail::TextOrMask<T>) {
    static_assert(detail::kNoSamples<T>,
                  "inspect::data takes the indices that a rank reads, as integers; this is text, or a mask of bools");
  } else if constexpr (std::ranges::range<T>) {
    order.batches.emplace();
    for (const auto& batch : object) {
      const std::vector<int64_t> samples = samples_of(batch).samples;
      order.samples.insert(order.samples.end(), samples.begin(), samples.end());
      order.batches->push_back(static_cast<int64_t>(samples.size()));
    }
  } else if constexpr (detail::PointsToSampler<const T>) {
    return samples_of(*object);
  } else {
    static_assert(detail::kNoSamples<T>,
                  "inspect::data takes the indices that a rank reads: a tensor, a range of integers (or of batches of "
                  "them), or a sampler whose next() gives indices");
  }
  return order;
}

/// Collective over the options' ranks, over the inspectors' own connections. The report is the same on every rank that
/// took part. Leaves samplers and random number generators unchanged. Throws dist::ArgumentError for indices that are
/// no integers, for options outside their ranges and for ranks that do not exist; dist::PeerLeft if a rank is lost
/// during the call.
DataReport data_of(const SampleOrder& order, const DataOptions& options);

template <typename T>
DataReport data(const T& object, const DataOptions& options = {}) {
  return data_of(samples_of(object), options);
}
template <typename T>
DataReport data(const T& object, std::string name) {
  return data(object, DataOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
