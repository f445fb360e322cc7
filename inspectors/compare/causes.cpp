#include "inspectors/compare/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "protocol/number_text.h"

namespace lockstep::inspect::compare {
namespace {

/// How much nearer than its difference a value has to come to be explained.
bool explains(double error, double tolerance, double before) {
  return error <= tolerance || (error <= 10 * tolerance && error < before / 1000);
}

double distance(const Sketch& a, double scale, const Sketch& b) {
  const double size = norm(b);
  const double apart = norm(difference(a, scale, b));
  return size > 0 ? apart / size : INFINITY;
}

/// Returns the one factor by which all values that differ are the reference's.
std::optional<double> factor_of(const Wrong& wrong) {
  std::optional<double> factor;
  for (const JudgedValue* each : wrong.differing) {
    const double size = dot(each->part.sums, each->part.sums);
    if (!each->fits || !(size > 0)) return std::nullopt;
    const double ratio = dot(each->summary.sums, each->part.sums) / size;
    if (!std::isfinite(ratio) || ratio == 0 ||
        !explains(distance(each->summary.sums, 1 / ratio, each->part.sums), wrong.tolerance, each->error))
      return std::nullopt;
    if (factor && std::abs(ratio - *factor) > 1e-3 * std::abs(*factor)) return std::nullopt;
    factor = factor ? *factor : ratio;
  }
  return factor;
}

bool is_near(double a, double b) { return std::abs(a - b) < 1e-3 * std::abs(b); }

std::string words_of_factor(const Wrong& wrong, double factor) {
  if (wrong.key.kind != PieceKind::loss && wrong.key.kind != PieceKind::backward &&
      wrong.key.kind != PieceKind::gradient)
    return "";
  const auto micro_batches = static_cast<double>(wrong.layout.micro_batches);
  const double replicas = wrong.layout.data_parallel();
  const auto same_samples = static_cast<double>(wrong.layout.groups.front().size());
  const bool is_gradient = wrong.key.kind == PieceKind::gradient;
  if (micro_batches > 1 && is_near(factor, micro_batches))
    return "the losses of the micro-batches are not divided by their number";
  if (micro_batches > 1 && is_near(factor, 1 / micro_batches))
    return "the losses of the micro-batches are divided by their number once too often";
  if (is_gradient && replicas > 1 && is_near(factor, replicas))
    return "it was summed over the data-parallel ranks, where the mean is meant";
  if (is_gradient && replicas > 1 && is_near(factor, 1 / replicas))
    return "it was divided once too often by the number of data-parallel ranks";
  if (is_gradient && same_samples > 1 && is_near(factor, same_samples))
    return "it was summed over ranks that work on the same samples, though each of them had all of it";
  if (is_gradient && same_samples > 1 && is_near(factor, 1 / same_samples))
    return "it was averaged over ranks that work on the same samples, whose gradients add up";
  return "";
}

/// Returns the value of a rank that has the same piece of the whole as `like`.
const JudgedValue* value_of(const Wrong& wrong, int rank, const JudgedValue& like) {
  const auto found = std::ranges::find_if(wrong.values, [&](const JudgedValue& each) {
    return each.rank == rank && each.micro_batch == like.micro_batch && each.piece->box == like.piece->box;
  });
  return found == wrong.values.end() ? nullptr : &*found;
}

/// Says that the values of a group of ranks are the reference's once they are added or averaged.
std::string words_of_missing_reduction(const Wrong& wrong) {
  const JudgedValue& like = *wrong.differing.front();
  const RankSet same_samples = wrong.layout.group_of(like.rank), across = wrong.layout.across_groups(like.rank);
  RankSet all;
  for (const RankSet& each : wrong.layout.groups) all = all | each;
  const auto is_reduced = [&](const RankSet& ranks, bool is_mean) {
    if (ranks.size() < 2 || like.piece->flags & Piece::partial) return false;
    Sketch sum{};
    bool is_replica = true;
    for (const int rank : ranks) {
      const JudgedValue* value = value_of(wrong, rank, like);
      if (!value) return false;
      is_replica = is_replica && distance(value->summary.sums, 1, like.summary.sums) <= wrong.tolerance;
      add(sum, value->summary.sums);
    }
    const double scale = is_mean ? 1 / static_cast<double>(ranks.size()) : 1;
    return !is_replica && explains(distance(sum, scale, like.part.sums), wrong.tolerance, like.error);
  };
  if (is_reduced(same_samples, false))
    return fmt::format("it was not reduced over {}, which work on the same samples: their sum is the reference's",
                       same_samples.words());
  if (wrong.key.kind != PieceKind::gradient) return "";
  if (is_reduced(across, true))
    return fmt::format("it was not averaged over the data-parallel {}: their mean is the reference's", across.words());
  if (is_reduced(across, false))
    return fmt::format("it was not reduced over the data-parallel {}: their sum is the reference's", across.words());
  if (all != same_samples && all != across && is_reduced(all, false))
    return fmt::format("it was not reduced over {}: their sum is the reference's", all.words());
  return "";
}

/// Says that a piece is that of another place.
std::string words_of_wrong_shard(const Wrong& wrong) {
  for (const JudgedValue* each : wrong.differing) {
    if (wrong.reference.micro_batches.size() != 1) return "";
    const Whole& whole = wrong.reference.micro_batches.front();
    const bool is_placed = (each->piece->flags & Piece::placed) != 0;
    PiecePlace place{.box = each->piece->box, .is_placed = is_placed, .place = wrong.layout.place_of(each->rank)};
    const auto is_part = [&](const Reading& reading) {
      return distance(each->summary.sums, 1, sketch_of_part(whole, reading, each->piece->box).sums) <= wrong.tolerance;
    };
    if (!is_placed) {
      for (const Reading& reading : readings_of(whole, place, true))
        if (is_part(reading)) return fmt::format("rank {} has shard {} of it", each->rank, reading.shard);
      continue;
    }
    for (const JudgedValue& other : wrong.values) {
      if (other.piece->box == each->piece->box || other.piece->box.size != each->piece->box.size) continue;
      const auto readings = readings_of(whole, {.box = other.piece->box, .is_placed = true});
      if (!readings.empty() && is_part(readings.front()))
        return fmt::format("rank {} has the shard of rank {}", each->rank, other.rank);
    }
  }
  return "";
}

std::string words_by_kind(const Wrong& wrong) {
  RankSet ranks, all;
  for (const JudgedValue* each : wrong.differing) ranks = ranks | each->ranks;
  for (const RankSet& each : wrong.layout.groups) all = all | each;
  const bool is_on_some = ranks != all;
  switch (wrong.key.kind) {
    case PieceKind::initial:
      return is_on_some ? "these ranks begin with other weights: is the model broadcast, or loaded by all of them?"
                        : "the runs begin with other weights: give both the same seed, or one checkpoint";
    case PieceKind::forward:
      return is_on_some ? fmt::format("{}, so {} {} something else here{}: a mask, positions, a setting",
                                      wrong.is_all_before_compared
                                          ? "the weights, the samples and all earlier outputs are the reference's"
                                          : "what was compared before it is the reference's",
                                      ranks.words(), ranks.size() == 1 ? "computes" : "compute",
                                      wrong.is_all_before_compared ? "" : ", or in what was not compared")
                        : "";
    case PieceKind::parameter:
      if (!wrong.is_update_compared) return "";
      return fmt::format(
          "{} are the reference's, so the update is another: learning rate, weight decay, state of the optimizer",
          wrong.is_all_before_compared ? "the gradients that the optimizer read" : "its gradient and its value before");
    default:
      return "";
  }
}

}  // namespace

Cause cause_of(const Wrong& wrong) {
  Cause cause;
  const JudgedValue& first = *wrong.differing.front();
  if (!first.fits) {
    cause.words = "no part of the reference's value has its shape";
    return cause;
  }
  const auto is_batch_norm = wrong.type.find("BatchNorm") != std::string::npos && !wrong.type.starts_with("Sync");
  if (wrong.key.kind == PieceKind::forward && is_batch_norm &&
      (wrong.layout.data_parallel() > 1 || wrong.layout.micro_batches > 1)) {
    cause.is_meant = true;
    cause.words = fmt::format(
        "{} takes its statistics over the samples of one {}, which are fewer here: this is other "
        "training by definition (torch.nn.SyncBatchNorm takes them over all ranks)",
        wrong.type, wrong.layout.data_parallel() > 1 ? "rank" : "micro-batch");
    return cause;
  }
  if (first.summary.not_finite != first.part.not_finite) {
    cause.words = fmt::format("{} of its elements are NaN or Inf, and {} of the reference's", first.summary.not_finite,
                              first.part.not_finite);
    return cause;
  }
  cause.words = words_of_missing_reduction(wrong);
  if (!cause.words.empty()) return cause;
  cause.factor = factor_of(wrong);
  if (cause.factor) {
    cause.words = words_of_factor(wrong, *cause.factor);
    if (cause.words.empty() && wrong.key.kind == PieceKind::parameter) cause.words = words_by_kind(wrong);
    return cause;
  }
  const Element reference = wrong.reference.micro_batches.front().element;
  if (first.piece->element != reference) {
    cause.words =
        fmt::format("it is of {}, and the reference's is of {}", name_of(first.piece->element), name_of(reference));
    return cause;
  }
  cause.words = words_of_wrong_shard(wrong);
  if (cause.words.empty()) cause.words = words_by_kind(wrong);
  return cause;
}

}  // namespace lockstep::inspect::compare
