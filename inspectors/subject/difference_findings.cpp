#include "inspectors/subject/difference_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "collectives/log/collective_op.h"
#include "collectives/watch/spelling.h"

namespace lockstep::inspect {
namespace {

constexpr double kManyUlp = 1000;  // from which on their number says nothing

std::string plural(FindingKind kind) {
  if (kind == FindingKind::rng) return "generators";
  if (kind == FindingKind::state) return "state tensors and steps";
  return std::string(to_string(kind)) + "s";
}

std::vector<int64_t> index_of(int64_t element, at::IntArrayRef shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; element /= std::max<int64_t>(shape[d], 1))
    index[d] = element % std::max<int64_t>(shape[d], 1);
  return index;
}

FindingTensor tensor_of(const Item& item, const ItemDifference& difference, const RankSet& ranks) {
  FindingTensor tensor{.name = item.name};
  if (!item.tensor.defined()) return tensor;
  tensor.dtype = dist::dtype_name(static_cast<uint8_t>(item.tensor.scalar_type()));
  tensor.shape = item.tensor.sizes().vec();
  int64_t count = 0, first = -1;
  double distance = 0, ulp = 0;
  const bool bits = difference.representation_only();
  for (const Difference& each : difference.difference) {
    count = std::max(count, bits ? each.zero_signs + each.nan_payloads : each.count);
    const int64_t element = bits ? each.first_bits : each.first;
    if (element >= 0 && (first < 0 || element < first)) first = element;
    distance = std::max(distance, each.max_abs);
    ulp = std::max(ulp, each.max_ulp);
  }
  if (difference.complete) tensor.count = count;
  if (first >= 0) tensor.first = index_of(first, item.tensor.sizes());
  if (item.kind == FindingKind::rng) return tensor;
  if (first >= 0 && !bits) tensor.max_abs_diff = distance;
  if (first >= 0 && !bits && (c10::isFloatingType(item.tensor.scalar_type()) || item.tensor.is_complex()))
    tensor.max_ulp = ulp;
  for (size_t i = 0; i < difference.norm.size(); ++i) tensor.norms[ranks.ranks()[i]] = difference.norm[i];
  return tensor;
}

/// Has the items of one finding.
struct Party {
  bool note = false;
  FindingKind kind = FindingKind::value;
  RankSet faulty, reference;
  std::vector<const ItemDifference*> items;
  std::vector<RankSet> classes;  // of the faulty ranks, if some of them agree

  /// Whether every rank agrees with another one.
  bool in_groups() const {
    return classes.size() > 1 && std::ranges::all_of(classes, [](const RankSet& each) { return each.size() > 1; });
  }
};

bool swapped(const ItemDifference& a, const ItemDifference& b, const RankSet& ranks) {
  if (a.faulty != b.faulty || a.hash.empty() || b.hash.empty()) return false;
  const auto& list = ranks.ranks();
  const size_t source = static_cast<size_t>(std::find(list.begin(), list.end(), a.source) - list.begin());
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == source || !a.faulty.contains(list[i])) continue;
    if (a.hash[i] != b.hash[source] || b.hash[i] != a.hash[source]) return false;
  }
  return a.hash[source] != b.hash[source];
}

/// Returns "`a` and `b`" for each pair that is swapped.
std::string swaps(const Party& party, const Subject& subject, const RankSet& ranks) {
  std::string text;
  for (size_t i = 0; i < party.items.size(); ++i)
    for (size_t j = i + 1; j < party.items.size(); ++j)
      if (swapped(*party.items[i], *party.items[j], ranks))
        text += fmt::format("{}`{}` and `{}`", text.empty() ? "" : ", ", subject.items[party.items[i]->item].name,
                            subject.items[party.items[j]->item].name);
  return text;
}

bool same_elements(const ItemDifference& item) {
  return !item.elements_hash.empty() && std::all_of(item.elements_hash.begin(), item.elements_hash.end(),
                                                    [&](uint64_t each) { return each == item.elements_hash[0]; });
}

/// Returns "100 + rank" if generators were seeded by the number of the rank; empty otherwise.
std::string seeds_by_rank(const ItemDifference& item, const RankSet& ranks) {
  // The seeds of two ranks always fit a line; random seeds are further apart.
  constexpr int64_t kFurthest = 1'000'000;
  if (item.seed.size() != ranks.size() || ranks.size() < 2) return "";
  const auto& list = ranks.ranks();
  const auto distance = static_cast<int64_t>(item.seed[1] - item.seed[0]);
  const int64_t step = distance / (list[1] - list[0]);
  if (step == 0 || std::abs(step) > kFurthest) return "";
  for (size_t i = 0; i < list.size(); ++i)
    if (item.seed[i] != item.seed[0] + static_cast<uint64_t>(step * (list[i] - list[0]))) return "";
  const auto first = static_cast<int64_t>(item.seed[0] - static_cast<uint64_t>(step * list[0]));
  const std::string number = step == 1 ? "rank" : fmt::format("{} * rank", step);
  return first == 0 ? number : fmt::format("{} + {}", first, number);
}

/// Describes the first item: its values, or the distance and norms of its tensors.
std::string details(const Party& party, const Subject& subject, const About& about) {
  const RankSet& ranks = about.ranks;
  const ItemDifference& item = *party.items.front();
  if (party.kind == FindingKind::rng) {
    const std::string seeds = seeds_by_rank(item, ranks);
    return seeds.empty()
               ? "they draw different random numbers"
               : fmt::format("each rank is seeded by its number ({}), and draws its own random numbers", seeds);
  }
  const std::string name = subject.items[item.item].name;
  if (!item.value.empty())
    return (name.empty() || party.kind == FindingKind::mode ? "" : name + ": ") + values_text(item.value, about);
  std::string text;
  if (const std::string pairs = swaps(party, subject, ranks); !pairs.empty()) return pairs + " seem to be swapped";
  if (same_elements(item))
    return (party.items.size() == 1 ? "the same elements" : name + " has the same elements") +
           std::string(" in another order");
  double distance = 0, ulp = 0;
  size_t worst = item.norm.size();
  const size_t source = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), item.source) - ranks.begin());
  for (size_t i = 0; i < item.difference.size(); ++i) {
    if (i == source) continue;
    distance = std::max(distance, item.difference[i].max_abs);
    if (item.difference[i].max_ulp >= ulp) {
      ulp = item.difference[i].max_ulp;
      if (item.difference[i].first_bits >= 0) worst = i;
    }
  }
  if (worst >= item.norm.size()) return "";
  if (distance > 0)
    text += fmt::format("at most {:.2g} apart{}, ", distance,
                        ulp > 0 && ulp < kManyUlp ? fmt::format(" ({:.0f} ULP)", ulp) : "");
  text += fmt::format("norm {:.6g} {}, {:.6g} {}", item.norm[worst], about.at({ranks.ranks()[worst]}),
                      item.norm[source], about.at({ranks.ranks()[source]}));
  if (item.not_finite[worst] != item.not_finite[source])
    text += fmt::format("; NaN or Inf: {} and {}", item.not_finite[worst], item.not_finite[source]);
  return party.items.size() == 1 ? text : name + ": " + text;
}

/// Whether all elements are the same, as in biases and normalisations that nothing has trained: they are equal whatever
/// the seed.
bool is_constant(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor plain = tensor.cpu().contiguous();
  const size_t element = plain.element_size();
  if (plain.numel() < 2) return true;
  const auto* data = static_cast<const uint8_t*>(plain.const_data_ptr());
  return std::memcmp(data, data + element, plain.nbytes() - element) == 0;
}

/// Whether every parameter differs that could differ between two seeds. `party` is about parameters.
bool differs_throughout(const Party& party, const Subject& subject) {
  if (party.items.size() < 2) return false;
  for (size_t i = 0; i < subject.items.size(); ++i) {
    const Item& item = subject.items[i];
    if (item.kind == FindingKind::parameter && item.tensor.defined() &&
        std::ranges::none_of(party.items, [&](const ItemDifference* each) { return each->item == i; }) &&
        !is_constant(item.tensor))
      return false;
  }
  return true;
}

/// Says, from the distances, why every parameter differs.
std::string likely_cause(const Party& party, const About& about) {
  const RankSet& ranks = about.ranks;
  const bool files = !about.names.empty();
  // All parameters of a rank count together: those that began with zeros, such as biases, are unrelated in any case,
  // and small. The distance between unrelated random values is about that of orthogonal vectors.
  int unrelated = 0, near = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    double distance = 0, both = 0;
    for (const ItemDifference* item : party.items) {
      const auto source = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), item->source) - ranks.begin());
      if (i == source || i >= item->difference.size() || !item->complete || !party.faulty.contains(ranks.ranks()[i]))
        continue;
      distance += item->difference[i].squares;
      both += item->norm[i] * item->norm[i] + item->norm[source] * item->norm[source];
    }
    if (distance > 0) ++(distance > 0.25 * both ? unrelated : near);
  }
  if (unrelated + near == 0 && files) return "of different runs, or from different seeds?";
  if (unrelated + near == 0) return "were they initialised from different seeds, or loaded on some ranks only?";
  if (near > unrelated && files)
    return "close to one another: of different steps, or of replicas that were trained separately?";
  if (files && unrelated + near > 0) return "unrelated to one another: of different runs, or from different seeds?";
  if (near > unrelated && party.in_groups())
    return "close to one another, so they were equal and were trained separately: are gradients reduced over a "
           "sub-group?";
  if (near > unrelated)
    return "close to one another, so they were equal and were trained separately: are gradients reduced in every step, "
           "and does every rank step?";
  if (!party.reference.empty())
    return "unrelated to those of the others: a checkpoint loaded on some ranks only, or another seed?";
  return fmt::format("unrelated to one another: initialised from different seeds? ({} before the module is made)",
                     spelling::kSeed.text());
}

}  // namespace

std::vector<Finding> difference_findings(const About& about, const Subject& subject,
                                         const std::vector<ItemDifference>& items, bool buffers_written) {
  const RankSet& ranks = about.ranks;
  std::vector<Finding> findings;
  std::vector<Party> parties;
  for (const ItemDifference& each : items) {
    const Item& item = subject.items[each.item];
    const bool note = each.representation_only() ||
                      (item.kind == FindingKind::buffer && (subject.buffers_are_local || buffers_written)) ||
                      (item.kind == FindingKind::rng && !seeds_by_rank(each, ranks).empty());
    const auto found = std::find_if(parties.begin(), parties.end(), [&](const Party& party) {
      return party.note == note && party.kind == item.kind && party.faulty == each.faulty;
    });
    Party& party = found != parties.end()
                       ? *found
                       : parties.emplace_back(Party{note, item.kind, each.faulty, each.reference, {}, {}});
    party.items.push_back(&each);
  }
  for (Party& party : parties) {
    for (const RankSet& each : classes_of(party.items, ranks))
      if (!(each & party.faulty).empty()) party.classes.push_back(each);
    const auto total = std::count_if(subject.items.begin(), subject.items.end(),
                                     [&](const Item& item) { return item.kind == party.kind; });
    const auto count = static_cast<std::ptrdiff_t>(party.items.size());
    const bool local = party.kind == FindingKind::buffer && (subject.buffers_are_local || buffers_written);
    const bool rng = party.kind == FindingKind::rng, mode = party.kind == FindingKind::mode;
    const Verdict verdict = local ? Verdict::ok : rng ? Verdict::diverged_seed : Verdict::mismatch;
    Finding found = about.finding(party.note ? Severity::note : Severity::fault, verdict, party.kind);
    found.ranks = party.faulty;
    found.reference_ranks = party.reference;
    for (const ItemDifference* each : party.items) {
      const Item& item = subject.items[each->item];
      // The message has a value without a name, and the mode of the only module.
      if (!item.tensor.defined() && (item.name.empty() || (mode && item.name == "training"))) continue;
      FindingTensor tensor = tensor_of(item, *each, ranks);
      if (tensor.name.empty()) tensor.name = about.object;
      found.tensors.push_back(std::move(tensor));
    }
    const std::string who = party.reference.empty()
                                ? (party.classes.empty() ? about.words(party.faulty) + " differ"
                                                         : classes_text(party.classes, about) + ", and they differ")
                                : fmt::format("{} differ{} from {}", about.words(party.faulty),
                                              party.faulty.size() == 1 ? "s" : "", about.words(party.reference));
    if (mode)
      found.message = who + " in train() and eval()";
    else if (total > 1)
      found.message = count == total ? fmt::format("{} in all {} {}", who, total, plural(party.kind))
                                     : fmt::format("{} in {} of {} {}", who, count, total, plural(party.kind));
    else
      found.message = who + (subject.items.size() > 1 && !found.tensors.empty() ? " in " + found.tensors[0].name : "");
    if (local && subject.buffers_are_local)
      found.message = "each rank has its own buffers, since the wrapper does not broadcast them: " + found.message;
    else if (local)
      found.message =
          "forward has written buffers since the wrapper made them equal, and the next forward broadcasts rank 0's: "
          "until then " +
          found.message;
    else if (party.note && !rng)
      found.message += " only in the signs of zeros or the bits of NaN; the values are the same";
    else if (party.kind == FindingKind::parameter && differs_throughout(party, subject))
      found.message +=
          fmt::format("{}: {}", count == total ? "" : ", all that are not constant", likely_cause(party, about));
    const std::string more = details(party, subject, about);
    if (!more.empty() && !local && (!party.note || rng)) found.message += (mode ? ": " : "; ") + more;
    if (!party.reference.empty() && party.faulty.size() > 1 && !party.note && !mode &&
        party.classes.size() < party.faulty.size())
      found.message += "; among them " + classes_text(party.classes, about);
    findings.push_back(std::move(found));
  }
  return findings;
}

}  // namespace lockstep::inspect
