#include "inspectors/data_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep::inspect {
namespace {

constexpr size_t kShown = 5;

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

/// Who reads what, over all ranks.
struct Readings {
  int64_t distinct = 0, in_range = 0;
  int64_t repeated_reads = 0;  // beyond a sample's first one
  std::vector<int64_t> shared;  // samples of more than one rank
  RankSet sharers;
  RankSet repeaters;  // ranks that read a sample more than once
  int64_t repeats = 0;
  std::vector<int64_t> omitted;  // the first few
  int64_t omitted_count = 0;
  std::vector<int64_t> outside;  // of the dataset
  RankSet outsiders;
};

Readings read(const SampleOrders& orders, const RankSet& ranks, std::optional<int64_t> size) {
  std::vector<std::pair<int64_t, size_t>> reads;
  for (size_t place = 0; place < orders.samples.size(); ++place)
    for (const int64_t sample : orders.samples[place]) reads.emplace_back(sample, place);
  std::sort(reads.begin(), reads.end());
  Readings result;
  int64_t expected = 0;
  const auto omit_until = [&](int64_t sample) {
    for (; expected < sample; ++expected) {
      ++result.omitted_count;
      if (result.omitted.size() <= kShown) result.omitted.push_back(expected);
    }
  };
  for (size_t i = 0; i < reads.size();) {
    size_t end = i;
    RankSet readers;
    for (; end < reads.size() && reads[end].first == reads[i].first; ++end) {
      const int rank = ranks.ranks()[reads[end].second];
      if (end > i && reads[end].second == reads[end - 1].second) {
        ++result.repeats;
        result.repeaters.insert(rank);
      }
      if (end == i || reads[end].second != reads[end - 1].second) readers.insert(rank);
    }
    const int64_t sample = reads[i].first;
    ++result.distinct;
    result.repeated_reads += static_cast<int64_t>(end - i) - 1;
    if (readers.size() > 1) {
      result.shared.push_back(sample);
      for (const int rank : readers) result.sharers.insert(rank);
    }
    if (size && (sample < 0 || sample >= *size)) {
      result.outside.push_back(sample);
      for (const int rank : readers) result.outsiders.insert(rank);
    } else if (size) {
      ++result.in_range;
      omit_until(sample);
      expected = sample + 1;
    }
    i = end;
  }
  if (size) omit_until(*size);
  return result;
}

/// Sets of ranks that read the same samples in the same order.
std::vector<RankSet> same_order(const SampleOrders& orders, const RankSet& ranks) {
  std::vector<RankSet> result;
  std::vector<bool> seen(orders.samples.size());
  for (size_t i = 0; i < orders.samples.size(); ++i) {
    if (seen[i] || orders.samples[i].empty()) continue;
    RankSet alike{ranks.ranks()[i]};
    for (size_t j = i + 1; j < orders.samples.size(); ++j) {
      if (orders.samples[j] != orders.samples[i]) continue;
      seen[j] = true;
      alike.insert(ranks.ranks()[j]);
    }
    if (alike.size() > 1) result.push_back(alike);
  }
  return result;
}

class Judge {
 public:
  Judge(const SampleOrders& orders, const DataOptions& options, DataReport& report, Round& round)
      : orders_(orders), options_(options), report_(report), round_(round), ranks_(round.ranks()) {}

  void run() {
    for (const auto& each : orders_.samples) report_.samples.push_back(static_cast<int64_t>(each.size()));
    count_batches();
    readings_ = read(orders_, ranks_, options_.size());
    report_.distinct = readings_.distinct;
    report_.shared = static_cast<int64_t>(readings_.shared.size());
    if (options_.size()) report_.omitted = readings_.omitted_count;
    const int64_t world = static_cast<int64_t>(ranks_.size()), count = report_.samples[0];
    const int64_t whole = options_.size().value_or(readings_.distinct);
    const int64_t share = (whole + world - 1) / world;
    const int64_t unit = options_.batch_size().value_or(1);  // some pad to whole batches
    padded_ = equal(report_.samples) && readings_.distinct == whole &&
              (count == share || count == (share + unit - 1) / unit * unit);
    if (padded_) report_.padding = readings_.repeated_reads;
    // Who draws with replacement reads some samples twice within a rank. Others on purpose do so nowhere.
    with_replacement_ = !padded_ && readings_.repeats > 0;

    uneven();
    outside();
    if (!alike() && !padded_) shared();
    if (with_replacement_) repeated();
    if (readings_.omitted_count > 0) omitted();
    ok();
  }

 private:
  void count_batches() {
    std::vector<std::vector<int64_t>> sizes = orders_.batches;
    if (sizes.empty() && !options_.batch_size()) return;
    for (size_t i = 0; i < orders_.samples.size(); ++i) {
      const int64_t samples = report_.samples[i];
      report_.batches.push_back(options_.batch_size() && orders_.batches.empty()
                                    ? (samples + *options_.batch_size() - 1) / *options_.batch_size()
                                    : static_cast<int64_t>(sizes[i].size()));
    }
  }

  Finding finding(Severity severity, const char* verdict, const char* kind, RankSet ranks) {
    if (severity == Severity::fault) fault_ = true;
    Finding result = round_.finding(severity, verdict);
    result.kind = kind;
    result.ranks = std::move(ranks);
    return result;
  }

  /// The ranks that have fewer than the most.
  RankSet with_fewer(const std::vector<int64_t>& counts) const {
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    RankSet result;
    for (size_t i = 0; i < counts.size(); ++i)
      if (counts[i] < most) result.insert(ranks_.ranks()[i]);
    return result;
  }

  void uneven() {
    const bool known = !report_.batches.empty();
    const std::vector<int64_t>& counts = known ? report_.batches : report_.samples;
    if (equal(report_.samples) && equal(counts)) return;
    const bool same_batches = known && equal(counts);
    const RankSet fewer = with_fewer(same_batches ? report_.samples : counts);
    const bool fault = !same_batches && !options_.join();
    Finding found = finding(fault ? Severity::fault : Severity::note, fault ? "uneven_data" : "ok",
                            known && !same_batches ? "batch" : "sample", fewer);
    found.reference_ranks = ranks_ - fewer;
    if (same_batches)
      found.message = fmt::format("samples: {}; every rank has {}, of which the last is smaller on {}",
                                  by_rank(report_.samples, ranks_), counted(counts[0], "batch"), fewer.words());
    else if (known)
      found.message = fmt::format("batches: {}", by_rank(counts, ranks_));
    else
      found.message = fmt::format("samples: {}", by_rank(counts, ranks_));
    if (fault) {
      const int64_t least = *std::min_element(counts.begin(), counts.end());
      found.message +=
          known
              ? fmt::format(
                    "; in batch {} the ranks that have one wait for ever for those that do not. Drop the "
                    "last, pad, or train under join()",
                    least + 1)
              : "; with batches of one size some ranks may have a batch more, and wait for ever in it for the others. "
                "Give the batch size to know (--batch-size N), pad, or train under join()";
    } else if (!same_batches) {
      found.message += "; the loop runs under join(), which is made for it";
    }
    round_.add(std::move(found));
  }

  void outside() {
    if (readings_.outside.empty()) return;
    Finding found = finding(Severity::fault, "mismatch", "index", readings_.outsiders);
    found.reference_ranks = ranks_ - readings_.outsiders;
    found.message = fmt::format("{} read{} {} beyond a dataset of {}: {}", readings_.outsiders.words(),
                                readings_.outsiders.size() == 1 ? "s" : "",
                                counted(static_cast<int64_t>(readings_.outside.size()), "sample"), *options_.size(),
                                some(readings_.outside));
    round_.add(std::move(found));
  }

  bool alike() {
    bool all = false;
    for (const RankSet& each : same_order(orders_, ranks_)) {
      const auto place =
          static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), each.ranks().front()) - ranks_.begin());
      // Of a dataset smaller than the ranks are many, some repeat what others read.
      if (padded_ && orders_.samples[place].size() == 1) continue;
      all = all || each == ranks_;
      Finding found = finding(Severity::fault, "duplicate_data", "order", each);
      found.message = fmt::format(
          "{} read the same {} in the same order ({}): nothing divides the data between them, so they compute the same "
          "gradients. Give the sampler the number of ranks and each rank's own number",
          each.words(), counted(static_cast<int64_t>(orders_.samples[place].size()), "sample"),
          some(orders_.samples[place]));
      round_.add(std::move(found));
      told_alike_ = told_alike_ | each;
    }
    return all || (!told_alike_.empty() && (readings_.sharers - told_alike_).empty());
  }

  void shared() {
    if (readings_.shared.empty()) return;
    const auto count = static_cast<int64_t>(readings_.shared.size());
    Finding found = finding(with_replacement_ ? Severity::note : Severity::fault,
                            with_replacement_ ? "ok" : "duplicate_data", "sample", readings_.sharers);
    found.message = fmt::format("{} read {} in common: {}", readings_.sharers.words(), counted(count, "sample"),
                                some(readings_.shared));
    const bool everything = readings_.sharers == ranks_ && count == readings_.distinct &&
                            readings_.repeated_reads == count * (static_cast<int64_t>(ranks_.size()) - 1);
    if (with_replacement_)
      found.message += "; samples are repeated within a rank, too, as drawing with replacement does";
    else if (everything)
      found.message += ". Every rank reads all of the data, each in its own order: nothing divides it";
    else if (!std::all_of(orders_.samples.begin(), orders_.samples.end(), in_sequence))
      found.message += ". Do the ranks shuffle with different seeds before they take their shares?";
    round_.add(std::move(found));
  }

  void repeated() {
    Finding found = finding(Severity::note, "ok", "repeat", readings_.repeaters);
    found.message = fmt::format(
        "{} read{} samples more than once in the epoch ({} so), as drawing with replacement does",
        readings_.repeaters.words(), readings_.repeaters.size() == 1 ? "s" : "", counted(readings_.repeats, "read"));
    round_.add(std::move(found));
  }

  /// What a sampler leaves out so that all ranks have as many full batches.
  bool dropped_last() const {
    if (!equal(report_.samples) || readings_.repeated_reads > 0) return false;
    const int64_t world = static_cast<int64_t>(ranks_.size()), count = report_.samples[0];
    const int64_t unit = options_.batch_size().value_or(1);
    const int64_t fewest = *options_.size() / world, most = (*options_.size() + world - 1) / world;
    return count == fewest || (count % unit == 0 && (count == fewest / unit * unit || count == most / unit * unit));
  }

  void omitted() {
    const bool fault = !with_replacement_ && !dropped_last();
    if (!fault && with_replacement_) return;
    Finding found = finding(fault ? Severity::fault : Severity::note, fault ? "missing" : "ok", "sample", ranks_);
    found.message = fmt::format("{} of {} samples {} read by no rank: {}", readings_.omitted_count, *options_.size(),
                                readings_.omitted_count == 1 ? "is" : "are", some(readings_.omitted));
    if (!fault) found.message += "; the last are dropped so that all ranks have as many";
    round_.add(std::move(found));
  }

  void ok() {
    if (fault_ || round_.has_fault()) return;
    Finding found = finding(Severity::note, "ok", "sample", ranks_);
    found.kind.reset();
    std::string text = fmt::format(
        "{} on {}: {}", counted(report_.distinct, "sample"), ranks_.words(),
        equal(report_.samples) ? std::to_string(report_.samples[0]) + " each" : by_rank(report_.samples, ranks_));
    if (!report_.batches.empty() && equal(report_.batches))
      text += fmt::format(" in {}", counted(report_.batches[0], "batch"));
    if (report_.padding > 0)
      text += fmt::format("; {} repeated so that all ranks have as many",
                          report_.padding == 1 ? "1 is" : fmt::format("{} are", report_.padding));
    else if (readings_.repeated_reads == 0)
      text += ", none twice";
    if (!options_.size()) text += "; the dataset's size is not known (--size N), so omissions can't be seen";
    found.message = std::move(text);
    round_.add(std::move(found));
  }

  const SampleOrders& orders_;
  const DataOptions& options_;
  DataReport& report_;
  Round& round_;
  const RankSet ranks_;
  Readings readings_;
  RankSet told_alike_;
  bool padded_ = false, with_replacement_ = false, fault_ = false;
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

void judge(const SampleOrders& orders, const DataOptions& options, DataReport& report, Round& round) {
  Judge(orders, options, report, round).run();
}

}  // namespace lockstep::inspect
