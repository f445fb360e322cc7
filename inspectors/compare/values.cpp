#include "inspectors/compare/values.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace lockstep::inspect::compare {
namespace {

bool has_samples(PieceKind kind) { return kind == PieceKind::forward || kind == PieceKind::backward; }
bool has_scale(PieceKind kind) { return kind == PieceKind::loss || kind == PieceKind::backward; }

/// Adds the pieces of a group that are a value only as a sum, such as those before an all_reduce.
std::vector<JudgedValue> with_partial_ones_added(const std::vector<RankPiece>& pieces) {
  std::vector<JudgedValue> values;
  std::map<std::tuple<int32_t, uint32_t, std::vector<int64_t>>, size_t> sums;
  std::vector<size_t> added;
  for (const auto& [rank, piece] : pieces) {
    if (piece->flags & Piece::absent) continue;
    JudgedValue value{
        .ranks = {rank}, .rank = rank, .micro_batch = piece->micro_batch, .piece = piece, .summary = piece->summary};
    if (!(piece->flags & Piece::partial)) {
      values.push_back(std::move(value));
      added.push_back(1);
      continue;
    }
    const auto [at, is_new] = sums.try_emplace({piece->lead, piece->micro_batch, piece->box.offset}, values.size());
    if (is_new) {
      values.push_back(std::move(value));
      added.push_back(1);
      continue;
    }
    JudgedValue& sum = values[at->second];
    sum.ranks.insert(rank);
    add(sum.summary.sums, piece->summary.sums);
    sum.summary.not_finite += piece->summary.not_finite;
    ++added[at->second];
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].piece->flags & Piece::is_mean)
      for (double& each : values[i].summary.sums) each /= static_cast<double>(added[i]);
  return values;
}

/// Adds values over micro-batches, and over one rank of each group of samples.
std::vector<JudgedValue> added_up(const std::vector<JudgedValue>& values, const Layout& layout) {
  std::map<std::pair<int, std::vector<int64_t>>, JudgedValue> sums;
  for (const JudgedValue& each : values) {
    const auto [at, is_new] = sums.try_emplace({layout.place_of(each.rank), each.piece->box.offset}, each);
    JudgedValue& sum = at->second;
    sum.is_sum = true;
    if (is_new) continue;
    sum.ranks = sum.ranks | each.ranks;
    add(sum.summary.sums, each.summary.sums);
    sum.summary.not_finite += each.summary.not_finite;
  }
  std::vector<JudgedValue> result;
  for (auto& [key, value] : sums) result.push_back(std::move(value));
  return result;
}

}  // namespace

void compare_with(JudgedValue& value, const Summary& part, double reference_norm, double fraction) {
  const Sketch apart = difference(value.summary.sums, 1, part.sums);
  // A part that has hardly anything of the whole, such as the rows of rare tokens, is measured by the whole.
  const double size = std::max(norm(part.sums), reference_norm * std::sqrt(fraction));
  double error = norm(apart);
  if (error > 0) error = size > 0 ? error / size : INFINITY;
  if (std::isnan(error) || value.summary.not_finite != part.not_finite) error = INFINITY;
  if (value.fits && error >= value.error) return;
  value.fits = true;
  value.error = error;
  value.part = part;
}

std::vector<JudgedValue> judged_values(const PieceKey& key, const std::vector<RankPiece>& pieces,
                                       const ReferenceValue& reference, const CandidateStep& step) {
  std::vector<JudgedValue> values = with_partial_ones_added(pieces);
  if (has_scale(key.kind))
    for (JudgedValue& each : values)
      for (double& sum : each.summary.sums) sum *= step.scale;
  const Whole& first = reference.micro_batches.front();
  const auto place_of = [&](const JudgedValue& value) {
    PiecePlace place{.box = value.piece->box, .is_placed = (value.piece->flags & Piece::placed) != 0};
    place.place = step.layout.place_of(value.rank);
    if (has_samples(key.kind)) {
      place.samples = static_cast<int64_t>(step.layout.samples_of(value.rank, value.micro_batch));
      const auto rows = step.rows.find({value.rank, value.micro_batch});
      if (rows != step.rows.end()) place.rows = &rows->second;
    }
    return place;
  };
  std::optional<Whole> flattened;
  const auto whole_for = [&](const JudgedValue& value) -> const Whole& {
    if (!(value.piece->flags & Piece::flat)) return first;
    if (!flattened) {
      flattened = first;
      flattened->shape = {count_of(first.shape)};
    }
    return *flattened;
  };
  const auto fraction = [&](const JudgedValue& value, const Whole& whole) {
    const auto count = static_cast<double>(count_of(whole.shape));
    return count > 0 ? static_cast<double>(count_of(value.piece->box.size)) / count : 1;
  };

  // Pieces whose samples are rows of the reference's value.
  bool are_by_sample = false;
  if (has_samples(key.kind) && !values.empty()) {
    std::optional<Whole> joined;  // the batch of the reference, whose micro-batches may be several
    const Box& box = values.front().piece->box;
    std::optional<size_t> dimension;
    if (reference.micro_batches.size() > 1) {
      const auto samples =
          static_cast<int64_t>(step.layout.samples_of(values.front().rank, values.front().micro_batch));
      dimension = sample_dimension(first.shape, first.samples, box.shape, samples);
      if (dimension) joined = concatenated(reference.micro_batches, *dimension);
    }
    if (joined || reference.micro_batches.size() == 1) {
      const Whole& whole = joined ? *joined : first;
      for (JudgedValue& value : values)
        for (const Reading& reading : readings_of(whole, place_of(value))) {
          are_by_sample = are_by_sample || reading.is_by_sample;
          if (key.kind == PieceKind::backward && !reading.is_by_sample) continue;
          compare_with(value, sketch_of_part(whole, reading, value.piece->box), reference.norm, fraction(value, whole));
        }
    }
    if (are_by_sample) return values;
  }

  // What has no rows of samples: the loss, and gradients that are sums over samples, add up. Others are replicas.
  if (has_scale(key.kind)) values = added_up(values, step.layout);
  for (JudgedValue& value : values) {
    value.fits = false;
    PiecePlace place = place_of(value);
    place.rows = nullptr;
    const Whole& whole = whole_for(value);
    for (const Reading& reading : readings_of(whole, place)) {
      Summary part = sketch_of_part(whole, reading, value.piece->box);
      if (has_scale(key.kind))
        for (size_t i = 1; i < reference.micro_batches.size(); ++i) {
          if (reference.micro_batches[i].shape != first.shape) continue;
          const Summary more = sketch_of_part(reference.micro_batches[i], reading, value.piece->box);
          add(part.sums, more.sums);
          part.not_finite += more.not_finite;
        }
      compare_with(value, part, reference.norm, fraction(value, whole));
    }
  }
  return values;
}

}  // namespace lockstep::inspect::compare
