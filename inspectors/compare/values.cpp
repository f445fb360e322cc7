#include "inspectors/compare/values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
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

Elements divided(const Elements& elements, double divisor) {
  std::vector<double> numbers =
      as_doubles(elements.element, elements.bytes.data(), elements.bytes.size() / size_of(elements.element));
  for (double& each : numbers) each /= divisor;
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
  return {Element::float64, {bytes, bytes + numbers.size() * sizeof(double)}};
}

/// Compares one value with the parts of the reference that it may be, of which the nearest counts.
class Comparer {
 public:
  Comparer(JudgedValue& value, double reference_norm, const CandidateStep& step, bool is_scaled)
      : value_(value), reference_norm_(reference_norm), step_(step), is_scaled_(is_scaled) {
    value_.fits = false;
    value_.expected.reset();
    // The checksum is that of the sums of one piece.
    is_one_piece_ = value.summary.sums == value.piece->summary.sums && value.ranks.size() == 1;
    value_.resolution = is_one_piece_ ? 0 : resolution_of(value.piece->element);
  }

  void compare(const Whole& whole, const Reading& reading, const Summary& part) {
    const Sketch apart = difference(value_.summary.sums, 1, part.sums);
    const auto count = static_cast<double>(count_of(whole.shape));
    const double fraction = count > 0 ? static_cast<double>(count_of(value_.piece->box.size)) / count : 1;
    // A part that has hardly anything of the whole, such as the rows of rare tokens, is measured by the whole.
    const double size = std::max(norm(part.sums), reference_norm_ * std::sqrt(fraction));
    double error = norm(apart);
    if (error > 0) error = size > 0 ? error / size : INFINITY;
    if (is_one_piece_)
      error =
          checksum_of(part.sums) == value_.piece->checksum ? 0 : std::max(error, resolution_of(value_.piece->element));
    if (std::isnan(error) || value_.summary.not_finite != part.not_finite) error = INFINITY;
    if (step_.tolerance)
      options_.push_back({.form = {reading.is_by_sample, reading.blocks},
                          .error = error,
                          .sums = part.sums,
                          .whole = &whole,
                          .reading = reading});
    if (value_.fits && error >= value_.error) return;
    value_.fits = true;
    value_.error = error;
    value_.part = part;
  }

  /// Whether a part is one of samples, and of how many blocks.
  using Form = std::pair<bool, int64_t>;

  /// Called after all parts: decides which one the value should be. Returns its form; nothing where that is not clear.
  std::optional<Form> decide() {
    if (options_.empty() || value_.piece->flags & Piece::partial) return std::nullopt;
    std::ranges::stable_sort(options_, {}, &Option::error);
    const auto is_by_sample = [](const Option& each) { return each.form.first; };
    if (options_.front().error > *step_.tolerance && std::ranges::any_of(options_, is_by_sample))
      std::erase_if(options_, std::not_fn(is_by_sample));
    const Option& nearest = options_.front();
    const auto other = std::ranges::find_if(options_, [&](const Option& each) { return each.sums != nearest.sums; });
    const bool is_clear = other == options_.end() || nearest.error < kClearlyNearer * other->error;
    if (nearest.error > *step_.tolerance && !is_clear) return std::nullopt;
    return take(nearest.form);
  }

  /// Takes the nearest part of a form that another rank's value has.
  std::optional<Form> take(const Form& form) {
    const auto option = std::ranges::find(options_, form, &Option::form);
    if (option == options_.end() || value_.piece->flags & Piece::partial) return std::nullopt;
    value_.expected = Elements{option->whole->element, elements_of_part(*option->whole, option->reading)};
    if (is_scaled_ && step_.scale != 1) value_.expected = divided(*value_.expected, step_.scale);
    return form;
  }

 private:
  struct Option {
    Form form;
    double error = 0;
    Sketch sums;
    const Whole* whole = nullptr;
    Reading reading;
  };

  JudgedValue& value_;
  const double reference_norm_;
  const CandidateStep& step_;
  const bool is_scaled_;
  bool is_one_piece_ = false;
  std::vector<Option> options_;  // the parts, where it is asked for what the value should be
};

/// Decides what values should be. Those of all ranks are divided in one way.
void decide(std::vector<Comparer>& comparers) {
  std::set<Comparer::Form> forms;
  std::vector<Comparer*> unclear;
  for (Comparer& each : comparers) {
    if (const auto form = each.decide())
      forms.insert(*form);
    else
      unclear.push_back(&each);
  }
  if (forms.size() != 1) return;
  for (Comparer* each : unclear) each->take(*forms.begin());
}

}  // namespace

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
      std::vector<Comparer> comparers;
      for (JudgedValue& value : values) {
        Comparer& comparer = comparers.emplace_back(value, reference.norm, step, has_scale(key.kind));
        for (const Reading& reading : readings_of(whole, place_of(value))) {
          are_by_sample = are_by_sample || reading.is_by_sample;
          if (key.kind == PieceKind::backward && !reading.is_by_sample) continue;
          comparer.compare(whole, reading, sketch_of_part(whole, reading, value.piece->box));
        }
      }
      decide(comparers);
    }
    if (are_by_sample) return values;
  }

  // What has no rows of samples: the loss, and gradients that are sums over samples, add up. Others are replicas.
  if (has_scale(key.kind)) values = added_up(values, step.layout);
  std::vector<Comparer> comparers;
  for (JudgedValue& value : values) {
    PiecePlace place = place_of(value);
    place.rows = nullptr;
    const Whole& whole = whole_for(value);
    Comparer& comparer = comparers.emplace_back(value, reference.norm, step, has_scale(key.kind));
    for (const Reading& reading : readings_of(whole, place)) {
      Summary part = sketch_of_part(whole, reading, value.piece->box);
      if (has_scale(key.kind))
        for (size_t i = 1; i < reference.micro_batches.size(); ++i) {
          if (reference.micro_batches[i].shape != first.shape) continue;
          const Summary more = sketch_of_part(reference.micro_batches[i], reading, value.piece->box);
          add(part.sums, more.sums);
          part.not_finite += more.not_finite;
        }
      comparer.compare(whole, reading, part);
    }
  }
  decide(comparers);
  for (JudgedValue& value : values)
    if (value.ranks.size() > 1 || reference.micro_batches.size() > 1 || (value.is_sum && step.layout.micro_batches > 1))
      value.expected.reset();
  return values;
}

}  // namespace lockstep::inspect::compare
