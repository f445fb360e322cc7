#include "inspectors/compare/data.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::inspect::compare {
namespace {

Finding finding_of_data(uint32_t step, const RankSet& ranks, const std::string& what) {
  Finding finding{.severity = Severity::fault,
                  .step = step,
                  .inspector = "compare",
                  .verdict = Verdict::mismatch,
                  .ranks = ranks,
                  .kind = FindingKind::input};
  finding.message = fmt::format("step {}: the samples differ: {}", step, what);
  return finding;
}

/// Returns the places of each sample in the batch of the reference. Equal samples have several.
std::map<uint64_t, std::vector<int64_t>> rows_of(const Layout& reference) {
  std::map<uint64_t, std::vector<int64_t>> rows;
  int64_t next = 0;
  for (const auto& [batch, hashes] : reference.batches)
    for (const uint64_t hash : *hashes) rows[hash].push_back(next++);
  return rows;
}

std::string count_words(size_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace

std::optional<Finding> compare_data(const Layout& reference, const Layout& candidate, uint32_t step, Rows& rows) {
  const auto where = rows_of(reference);
  if (where.empty() && candidate.batches.empty()) return std::nullopt;
  RankSet ranks;
  std::string unknown;
  std::map<uint64_t, size_t> seen;
  for (const RankSet& group : candidate.groups) {
    const int first = *group.begin();
    size_t foreign = 0, given = 0;
    for (const auto& [batch, hashes] : candidate.batches) {
      if (batch.first != first) continue;
      for (const uint64_t hash : *hashes) {
        ++given;
        const auto found = where.find(hash);
        if (found == where.end()) {
          ++foreign;
          continue;
        }
        // Equal samples take their places in turn.
        const size_t nth = seen[hash]++;
        const int64_t row = found->second[nth % found->second.size()];
        for (const int rank : group) rows[{rank, batch.second}].push_back(row);
      }
    }
    if (foreign == 0) continue;
    ranks = ranks | group;
    unknown += fmt::format("{}{} of the {} of {} are not in the reference's batch", unknown.empty() ? "" : ", ",
                           foreign, count_words(given, "sample"), group.words());
  }
  if (!unknown.empty()) return finding_of_data(step, ranks, unknown);
  size_t total = 0, unseen = 0, again = 0;
  for (const auto& [hash, at] : where) {
    total += at.size();
    const auto found = seen.find(hash);
    const size_t times = found == seen.end() ? 0 : found->second;
    unseen += at.size() - std::min(at.size(), times);
    again += times - std::min(at.size(), times);
  }
  if (unseen == 0 && again == 0) return std::nullopt;
  RankSet all;
  std::string readers;
  for (const RankSet& group : candidate.groups) {
    all = all | group;
    if (group.size() > 1) readers += fmt::format("; {} are given the same samples", group.words());
  }
  std::string what;
  if (unseen > 0)
    what = fmt::format("{} of the {} of the reference's batch reach no rank", unseen, count_words(total, "sample"));
  if (again > 0)
    what += fmt::format("{}{} more than once", what.empty() ? "" : ", ",
                        what.empty() ? count_words(again, "sample") + " of the reference's batch are used"
                                     : fmt::format("{} are used", again));
  return finding_of_data(step, all, what + readers);
}

std::vector<int64_t> recorded_rows(const Layout& reference, const std::vector<RankPiece>& pieces) {
  std::vector<int64_t> recorded;
  int64_t next = 0;
  for (const auto& [batch, hashes] : reference.batches) {
    const bool has_value =
        std::ranges::any_of(pieces, [&](const RankPiece& each) { return each.piece->micro_batch == batch.second; });
    for (size_t i = 0; i < hashes->size(); ++i) recorded.push_back(has_value ? next++ : -1);
  }
  return recorded;
}

std::optional<Rows> rows_among(const std::vector<int64_t>& recorded, const std::vector<RankPiece>& pieces,
                               const Rows& rows) {
  Rows among;
  for (const RankPiece& each : pieces) {
    const auto found = rows.find({each.rank, each.piece->micro_batch});
    if (found == rows.end()) continue;
    std::vector<int64_t> of_piece;
    for (const int64_t row : found->second) of_piece.push_back(recorded[static_cast<size_t>(row)]);
    if (std::ranges::any_of(of_piece, [](int64_t row) { return row < 0; })) return std::nullopt;
    among[found->first] = std::move(of_piece);
  }
  return among;
}

std::optional<Finding> compare_same_data(const Layout& reference, const Layout& candidate, uint32_t step) {
  RankSet ranks;
  for (const Layout* each : {&reference, &candidate})
    for (const auto& [batch, hashes] : each->batches) {
      const auto a = reference.batches.find(batch), b = candidate.batches.find(batch);
      if (a == reference.batches.end() || b == candidate.batches.end() || *a->second != *b->second)
        ranks.insert(batch.first);
    }
  if (ranks.empty()) return std::nullopt;
  return finding_of_data(step, ranks,
                         fmt::format("{} {} been given other ones, or in another order", ranks.words(),
                                     ranks.size() == 1 ? "has" : "have"));
}

}  // namespace lockstep::inspect::compare
