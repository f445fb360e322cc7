#include "inspectors/data/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "inspectors/data/sample_readings.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kShown = 5;
constexpr const char* kFollows = "; because of that ";

std::string some(const std::vector<int64_t>& indices) {
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(indices[i]);
  return text + (indices.size() > kShown ? ", …" : "");
}

/// "4 on ranks 0-1, 3 on rank 2".
std::string by_rank(const std::vector<int64_t>& counts, const RankSet& ranks) {
  std::map<int64_t, RankSet, std::greater<>> groups;
  for (size_t i = 0; i < counts.size(); ++i) groups[counts[i]].insert(ranks.ranks()[i]);
  std::string text;
  for (const auto& [count, who] : groups)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", count, who.words());
  return text;
}

bool equal(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t each) { return each == values[0]; });
}

/// Those that are like most others, and the rest; where no majority is, all and none.
struct Vote {
  RankSet at_fault, reference;
};

template <typename T>
Vote vote_on(const std::vector<T>& values, const RankSet& ranks) {
  std::map<T, RankSet> parties;
  for (size_t i = 0; i < values.size(); ++i) parties[values[i]].insert(ranks.ranks()[i]);
  for (const auto& [value, party] : parties)
    if (2 * party.size() > ranks.size()) return {ranks - party, party};
  return {ranks, {}};
}

/// One fault, one finding: what follows from a fault that has been found goes into its message.
class Judge {
 public:
  Judge(const About& about, const std::vector<DataFacts>& facts, const SampleOrders& orders)
      : about_(about), facts_(facts), orders_(orders), ranks_(about.ranks) {}

  DataJudgement run() {
    repeated_orders();
    for (const auto& each : orders_.samples) numbers_.samples.push_back(static_cast<int64_t>(each.size()));
    choose_size();
    count_batches();
    readings_ = read(orders_, ranks_, size_);
    numbers_.distinct = readings_.distinct;
    numbers_.shared = static_cast<int64_t>(readings_.shared.size());
    if (size_) numbers_.omitted = readings_.omitted_count;
    const int64_t world = static_cast<int64_t>(ranks_.size()), count = numbers_.samples[0];
    const int64_t whole = size_.value_or(readings_.distinct);
    const int64_t share = (whole + world - 1) / world;
    const int64_t unit = unit_of_batches();  // some pad to whole batches
    padded_ = equal(numbers_.samples) && readings_.distinct == whole &&
              (count == share || count == (share + unit - 1) / unit * unit);
    if (padded_) numbers_.padding = readings_.repeated_reads;
    // Who draws with replacement reads some samples twice within a rank. Others on purpose do so nowhere.
    with_replacement_ = !padded_ && readings_.repeats > 0;

    other_size();
    other_epoch();
    undivided();
    uneven();
    outside();
    if (!alike() && !padded_) shared();
    if (with_replacement_) repeated();
    if (readings_.omitted_count > 0) omitted();
    smaller_batches();
    ok();
    return {std::move(numbers_), std::move(findings_)};
  }

 private:
  /// A rank that shuffles as in an earlier epoch reads what others read then.
  void repeated_orders() {
    std::map<int64_t, RankSet> proven;
    RankSet perhaps;
    for (size_t i = 0; i < facts_.size(); ++i) {
      if (facts_[i].repeated_epoch) proven[*facts_[i].repeated_epoch].insert(about_.rank_at(i));
      if (facts_[i].repeats_last_call) perhaps.insert(about_.rank_at(i));
    }
    const int64_t now = facts_[0].epoch.value_or(0);
    for (const auto& [epoch, ranks] : proven) {
      Finding found = finding(Severity::fault, "duplicate_data", "epoch", ranks);
      found.message = fmt::format(
          "in epoch {} {} read{} in the order of epoch {}: call set_epoch({}) of the sampler that the loader reads "
          "before "
          "the epoch begins (a DataLoader keeps a copy of the sampler that it is made with)",
          now, ranks.words(), ranks.size() == 1 ? "s" : "", epoch, now);
      findings_.push_back(std::move(found));
    }
    if (perhaps.empty()) return;
    Finding found = finding(Severity::note, "ok", "epoch", perhaps);
    found.message = fmt::format(
        "{} read{} in the same order as at the last call. If an epoch lies between, set_epoch was forgotten (--epoch K "
        "says which one it is)",
        perhaps.words(), perhaps.size() == 1 ? "s" : "");
    findings_.push_back(std::move(found));
  }

  /// The dataset's, as most ranks that know it say.
  void choose_size() {
    std::map<int64_t, int> votes;
    for (const DataFacts& each : facts_)
      if (each.size) ++votes[*each.size];
    for (const auto& [size, count] : votes)
      if (!size_ || count >= votes.at(*size_)) size_ = size;
    sizes_differ_ = votes.size() > 1;
  }

  void count_batches() {
    const bool listed = !orders_.batches.empty();
    if (!listed && std::ranges::any_of(facts_, [](const DataFacts& each) { return !each.batch_size; })) return;
    for (size_t i = 0; i < orders_.samples.size(); ++i) {
      const auto& sizes = orders_.batches;
      // The last may be smaller.
      batch_sizes_.push_back(!listed            ? *facts_[i].batch_size
                             : sizes[i].empty() ? 0
                                                : *std::max_element(sizes[i].begin(), sizes[i].end()));
      numbers_.batches.push_back(listed ? static_cast<int64_t>(sizes[i].size())
                                        : (numbers_.samples[i] + batch_sizes_[i] - 1) / batch_sizes_[i]);
    }
  }

  int64_t unit_of_batches() const {
    int64_t unit = 1;
    for (const DataFacts& each : facts_) unit = std::max(unit, each.batch_size.value_or(1));
    return unit;
  }

  Finding finding(Severity severity, const char* verdict, const char* kind, RankSet ranks) {
    Finding result = about_.finding(severity, verdict);
    result.kind = kind;
    result.ranks = std::move(ranks);
    return result;
  }

  bool has_fault() const {
    return std::ranges::any_of(findings_, [](const Finding& each) { return each.severity == Severity::fault; });
  }

  /// Adds to a finding what follows from it.
  void follows(size_t cause, const std::string& text) {
    std::string& message = findings_[cause].message;
    message += (message.find(kFollows) == std::string::npos ? kFollows : ", and ") + text;
  }

  void take(Finding& found, const Vote& vote) {
    found.ranks = vote.at_fault;
    found.reference_ranks = vote.reference;
  }

  void other_size() {
    if (!sizes_differ_) return;
    std::vector<int64_t> sizes;
    for (const DataFacts& each : facts_) sizes.push_back(each.size.value_or(*size_));
    Finding found = finding(Severity::fault, "mismatch", "size", ranks_);
    take(found, vote_on(sizes, ranks_));
    found.message =
        fmt::format("size of the dataset: {}; ranks that divide datasets of unequal sizes read other shares",
                    by_rank(sizes, ranks_));
    division_ = findings_.size();
    findings_.push_back(std::move(found));
  }

  /// Ranks that shuffle as in different epochs take their shares from different orders.
  void other_epoch() {
    if (padded_ || readings_.shared.empty() || division_) return;
    for (size_t i = 0; i < findings_.size(); ++i)
      if (findings_[i].kind == "epoch" && findings_[i].severity == Severity::fault && findings_[i].ranks != ranks_)
        division_ = i;
    if (division_ || std::ranges::any_of(facts_, [](const DataFacts& each) { return !each.reported_epoch; }) ||
        std::ranges::all_of(orders_.samples, in_sequence))
      return;
    std::vector<int64_t> epochs;
    for (const DataFacts& each : facts_) epochs.push_back(*each.reported_epoch);
    if (equal(epochs)) return;
    Finding found = finding(Severity::fault, "duplicate_data", "epoch", ranks_);
    take(found, vote_on(epochs, ranks_));
    found.message = fmt::format(
        "the samplers are in different epochs, so ranks take their shares from different orders: epoch {}. Call "
        "set_epoch() on every rank before an epoch begins",
        by_rank(epochs, ranks_));
    division_ = findings_.size();
    findings_.push_back(std::move(found));
  }

  /// Some ranks read everything, and the others their shares.
  void undivided() {
    if (division_ || with_replacement_ || readings_.shared.empty()) return;
    RankSet all_of_it;
    for (size_t i = 0; i < numbers_.samples.size(); ++i)
      if (numbers_.samples[i] == size_.value_or(readings_.distinct)) all_of_it.insert(ranks_.ranks()[i]);
    const RankSet others = ranks_ - all_of_it;
    if (all_of_it.empty() || others.empty()) return;
    Finding found = finding(Severity::fault, "duplicate_data", "sample", all_of_it);
    found.reference_ranks = others;
    found.message =
        fmt::format("{} read{} all {}, those of {} among them: nothing divides the data there", all_of_it.words(),
                    all_of_it.size() == 1 ? "s" : "", counted(readings_.distinct, "sample"), others.words());
    division_ = findings_.size();
    findings_.push_back(std::move(found));
  }

  /// The ranks that have fewer than the most.
  RankSet with_fewer(const std::vector<int64_t>& counts) const {
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    RankSet result;
    for (size_t i = 0; i < counts.size(); ++i)
      if (counts[i] < most) result.insert(ranks_.ranks()[i]);
    return result;
  }

  /// Most are right; without a majority it is for those with fewer that the others wait.
  Vote fewer_or_unlike(const std::vector<int64_t>& counts) const {
    const Vote vote = vote_on(counts, ranks_);
    if (!vote.reference.empty()) return vote;
    const RankSet fewer = with_fewer(counts);
    return {fewer, ranks_ - fewer};
  }

  void uneven() {
    const bool known = !numbers_.batches.empty();
    const std::vector<int64_t>& counts = known ? numbers_.batches : numbers_.samples;
    if (equal(counts)) return;
    std::string what = fmt::format(
        "{} {}", known ? "numbers of batches differ:" : "numbers of samples differ:", by_rank(counts, ranks_));
    if (!join_ && division_) return follows(*division_, what);
    const bool other_sizes = known && !equal(batch_sizes_);
    Finding found = finding(join_ ? Severity::note : Severity::fault, join_ ? "ok" : "uneven_data",
                            known ? "batch" : "sample", ranks_);
    take(found, other_sizes ? vote_on(batch_sizes_, ranks_) : fewer_or_unlike(counts));
    found.message = fmt::format("{}: {}", known ? "batches" : "samples", by_rank(counts, ranks_));
    if (other_sizes) found.message += fmt::format("; samples in a batch: {}", by_rank(batch_sizes_, ranks_));
    if (join_) {
      found.message += "; the loop runs under join(), which is made for it";
    } else if (known) {
      found.message +=
          fmt::format("; in batch {} the ranks that have one wait for ever for those that do not. {}",
                      *std::min_element(counts.begin(), counts.end()) + 1,
                      other_sizes ? "Give all ranks one batch size" : "Drop the last, pad, or train under join()");
    } else {
      found.message +=
          "; with batches of one size some ranks may have a batch more, and wait for ever in it for the others. "
          "Give the batch size to know (--batch-size N), pad, or train under join()";
    }
    if (!join_ && !other_sizes && lacks_what_nobody_reads()) {
      short_share_ = std::move(what);
      return;
    }
    findings_.push_back(std::move(found));
  }

  /// Whether what the ranks with fewer samples lack is what no rank reads: their shares were cut off.
  bool lacks_what_nobody_reads() const {
    const int64_t most = *std::max_element(numbers_.samples.begin(), numbers_.samples.end());
    int64_t lack = 0;
    for (const int64_t each : numbers_.samples) lack += most - each;
    return readings_.omitted_count > 0 && readings_.repeated_reads == 0 && readings_.omitted_count <= lack &&
           readings_.omitted_count > lack - static_cast<int64_t>(ranks_.size());
  }

  void outside() {
    if (readings_.outside.empty()) return;
    Finding found = finding(Severity::fault, "mismatch", "index", readings_.outsiders);
    found.reference_ranks = ranks_ - readings_.outsiders;
    found.message =
        fmt::format("{} read{} {} beyond a dataset of {}: {}", readings_.outsiders.words(),
                    readings_.outsiders.size() == 1 ? "s" : "",
                    counted(static_cast<int64_t>(readings_.outside.size()), "sample"), *size_, some(readings_.outside));
    outside_ = findings_.size();
    findings_.push_back(std::move(found));
  }

  bool alike() {
    bool all = false;
    for (const RankSet& each : same_order(orders_, ranks_)) {
      const auto rank_index =
          static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), each.ranks().front()) - ranks_.begin());
      // Of a dataset smaller than the ranks are many, some repeat what others read.
      if (padded_ && orders_.samples[rank_index].size() == 1) continue;
      all = all || each == ranks_;
      reported_alike_ = reported_alike_ | each;
      if (division_) continue;
      Finding found = finding(Severity::fault, "duplicate_data", "order", each);
      found.message = fmt::format(
          "{} read the same {} in the same order ({}): nothing divides the data between them, so they compute the same "
          "gradients. Give the sampler the number of ranks and each rank's own number",
          each.words(), counted(static_cast<int64_t>(orders_.samples[rank_index].size()), "sample"),
          some(orders_.samples[rank_index]));
      doubled_ = findings_.size();
      findings_.push_back(std::move(found));
    }
    return all || (!reported_alike_.empty() && (readings_.sharers - reported_alike_).empty());
  }

  void shared() {
    if (readings_.shared.empty()) return;
    const auto count = static_cast<int64_t>(readings_.shared.size());
    const std::string what = fmt::format("{} read {} in common: {}", readings_.sharers.words(),
                                         counted(count, "sample"), some(readings_.shared));
    if (division_ && !with_replacement_) {
      // The finding of a rank that reads everything says already that it reads what the others do.
      if (findings_[*division_].kind != "sample") follows(*division_, what);
      return;
    }
    Finding found = finding(with_replacement_ ? Severity::note : Severity::fault,
                            with_replacement_ ? "ok" : "duplicate_data", "sample", readings_.sharers);
    found.message = what;
    const bool everything = readings_.sharers == ranks_ && count == readings_.distinct &&
                            readings_.repeated_reads == count * (static_cast<int64_t>(ranks_.size()) - 1);
    if (with_replacement_)
      found.message += "; samples are repeated within a rank, too, as drawing with replacement does";
    else if (everything)
      found.message += ". Every rank reads all of the data, each in its own order: nothing divides it";
    else if (!std::all_of(orders_.samples.begin(), orders_.samples.end(), in_sequence))
      found.message += ". Do the ranks shuffle with different seeds before they take their shares?";
    if (!with_replacement_ && !doubled_) doubled_ = findings_.size();
    findings_.push_back(std::move(found));
  }

  void repeated() {
    Finding found = finding(Severity::note, "ok", "repeat", readings_.repeaters);
    found.message = fmt::format(
        "{} read{} samples more than once in the epoch ({} so), as drawing with replacement does",
        readings_.repeaters.words(), readings_.repeaters.size() == 1 ? "s" : "", counted(readings_.repeats, "read"));
    findings_.push_back(std::move(found));
  }

  /// What a sampler leaves out so that all ranks have as many full batches.
  bool dropped_last() const {
    if (!equal(numbers_.samples) || readings_.repeated_reads > 0 || outside_) return false;
    const int64_t world = static_cast<int64_t>(ranks_.size()), count = numbers_.samples[0];
    const int64_t unit = unit_of_batches();
    const int64_t fewest = *size_ / world, most = (*size_ + world - 1) / world;
    return count == fewest || (count % unit == 0 && (count == fewest / unit * unit || count == most / unit * unit));
  }

  /// A read that was spent on a sample of another rank, or on none, is one that another sample did not get.
  std::optional<size_t> cause_of_omission() const {
    if (division_) return division_;
    if (doubled_ && readings_.omitted_count <= readings_.repeated_reads) return doubled_;
    if (outside_ && readings_.omitted_count <= static_cast<int64_t>(readings_.outside.size())) return outside_;
    return std::nullopt;
  }

  void omitted() {
    const bool fault = !with_replacement_ && !dropped_last();
    if (!fault && with_replacement_) return;
    const std::string what = fmt::format("{} of {} samples {} read by no rank: {}", readings_.omitted_count, *size_,
                                         readings_.omitted_count == 1 ? "is" : "are", some(readings_.omitted));
    if (const auto cause = cause_of_omission(); fault && cause) {
      follows(*cause, what);
      if (cause == outside_ && readings_.omitted.front() == 0 &&
          readings_.omitted_count == static_cast<int64_t>(readings_.outside.size()))
        findings_[*cause].message += fmt::format(". Is every index {} too high?", readings_.omitted_count);
      return;
    }
    Finding found = finding(fault ? Severity::fault : Severity::note, fault ? "missing" : "ok", "sample", ranks_);
    found.message = what;
    if (!short_share_.empty()) take(found, fewer_or_unlike(numbers_.samples));
    if (!fault) found.message += "; the last are dropped so that all ranks have as many";
    findings_.push_back(std::move(found));
    if (!short_share_.empty()) follows(findings_.size() - 1, short_share_);
  }

  /// As many batches everywhere, and not as many samples in them.
  void smaller_batches() {
    if (numbers_.batches.empty() || !equal(numbers_.batches)) return;
    if (equal(numbers_.samples) && (orders_.batches.empty() || equal_batches())) return;
    RankSet fewer = with_fewer(equal(numbers_.samples) ? batch_sizes_ : numbers_.samples);
    Finding found = finding(Severity::note, "ok", equal(numbers_.samples) ? "batch" : "sample", fewer);
    found.reference_ranks = ranks_ - fewer;
    if (!equal(batch_sizes_)) {
      take(found, vote_on(batch_sizes_, ranks_));
      found.message = fmt::format("samples in a batch: {}; every rank has {}", by_rank(batch_sizes_, ranks_),
                                  counted(numbers_.batches[0], "batch"));
    } else if (!equal(numbers_.samples)) {
      found.message = fmt::format("samples: {}; every rank has {}", by_rank(numbers_.samples, ranks_),
                                  counted(numbers_.batches[0], "batch"));
      if (orders_.batches.empty() || only_last_batches_differ())
        found.message += fmt::format(", of which the last is smaller on {}", fewer.words());
    } else {
      found.ranks = ranks_;
      found.message = fmt::format("every rank has {}, and ranks have batches of unequal sizes in one place",
                                  counted(numbers_.batches[0], "batch"));
    }
    found.message +=
        "; a loss that is the mean over a rank's own samples weighs those of the smaller batch more, once ranks are "
        "averaged";
    findings_.push_back(std::move(found));
  }

  bool equal_batches() const {
    return std::ranges::all_of(orders_.batches, [&](const auto& each) { return each == orders_.batches[0]; });
  }

  bool only_last_batches_differ() const {
    return std::ranges::all_of(orders_.batches, [&](const auto& each) {
      return each.empty() || std::equal(each.begin(), each.end() - 1, orders_.batches[0].begin());
    });
  }

  void ok() {
    if (has_fault()) return;
    Finding found = finding(Severity::note, "ok", "sample", ranks_);
    found.kind.reset();
    std::string text = fmt::format(
        "{} on {}: {}", counted(numbers_.distinct, "sample"), ranks_.words(),
        equal(numbers_.samples) ? std::to_string(numbers_.samples[0]) + " each" : by_rank(numbers_.samples, ranks_));
    if (!numbers_.batches.empty() && equal(numbers_.batches))
      text += fmt::format(" in {}", counted(numbers_.batches[0], "batch"));
    if (numbers_.padding > 0)
      text += fmt::format("; {} repeated so that all ranks have as many",
                          numbers_.padding == 1 ? "1 is" : fmt::format("{} are", numbers_.padding));
    else if (readings_.repeated_reads == 0)
      text += ", none twice";
    if (!size_) text += "; the dataset's size is not known (--size N), so omissions can't be seen";
    found.message = std::move(text);
    findings_.push_back(std::move(found));
  }

  const About& about_;
  const std::vector<DataFacts>& facts_;
  const SampleOrders& orders_;
  const RankSet ranks_;
  const bool join_ = std::ranges::any_of(facts_, [](const DataFacts& each) { return each.join; });
  DataNumbers numbers_;
  std::vector<Finding> findings_;
  std::optional<int64_t> size_;  // of the dataset
  std::vector<int64_t> batch_sizes_;  // of whole batches; empty where they are not known
  Readings readings_;
  RankSet reported_alike_;
  // Findings from which others follow, by index.
  std::optional<size_t> division_;  // why ranks do not divide the samples as they should
  std::optional<size_t> doubled_;  // ranks read the same samples
  std::optional<size_t> outside_;
  std::string short_share_;  // what follows from a share that was cut off
  bool sizes_differ_ = false, padded_ = false, with_replacement_ = false;
};

}  // namespace

bool in_sequence(const std::vector<int64_t>& samples) {
  size_t steps_back = 0;
  for (size_t i = 1; i < samples.size(); ++i) {
    if (samples[i] > samples[i - 1]) continue;
    if (++steps_back > 1 || i + 1 < samples.size() - samples.size() / 2) return false;
  }
  return true;
}

DataJudgement data_findings(const About& about, const std::vector<DataFacts>& facts, const SampleOrders& orders) {
  return Judge(about, facts, orders).run();
}

}  // namespace lockstep::inspect
