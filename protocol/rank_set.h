// A set of ranks, which `%%rank 0-2,^1` names and from which an event says it comes.
#pragma once
#include <initializer_list>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Holds the ranks in ascending order, without repetition.
class RankSet {
 public:
  RankSet() = default;
  RankSet(std::initializer_list<int> ranks);
  explicit RankSet(std::vector<int> ranks);

  static RankSet all(int world_size);

  bool empty() const { return ranks_.empty(); }
  size_t size() const { return ranks_.size(); }
  bool contains(int rank) const;
  void insert(int rank);
  /// Inserts a rank that becomes like these, where the set has all of them.
  void join(int rank, const RankSet& like) {
    if (!like.empty() && (like - *this).empty()) insert(rank);
  }
  void erase(int rank);
  const std::vector<int>& ranks() const { return ranks_; }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }

  RankSet operator|(const RankSet& other) const;
  RankSet operator&(const RankSet& other) const;
  RankSet operator-(const RankSet& other) const;
  bool operator==(const RankSet&) const = default;
  auto operator<=>(const RankSet&) const = default;

  /// Returns the folded form: `0-2,4`; the empty set is `none`.
  std::string str() const;
  /// Returns the form for a sentence: `rank 4`, `ranks 0-2,4`.
  std::string words() const;

 private:
  std::vector<int> ranks_;
};

/// Parses the grammar of rank sets: `all`, `3`, `0,2`, `0-3`, `0:8:2` (Python's slice), `^1` (takes away), any list of
/// these, with or without brackets. Ranks are those of a session of `world_size`. Throws UsageError that names the part
/// at fault and the ranks that exist.
RankSet parse_rank_set(std::string_view spec, int world_size);

std::ostream& operator<<(std::ostream& stream, const RankSet& set);
void to_json(nlohmann::json& json, const RankSet& set);
void from_json(const nlohmann::json& json, RankSet& set);

}  // namespace lockstep
