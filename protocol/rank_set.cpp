#include "protocol/rank_set.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "protocol/error.h"
#include "protocol/text.h"
#include "protocol/whole_number.h"

namespace lockstep {
namespace {

std::string existing(int world_size) {
  return world_size == 1 ? "the only rank is 0" : "ranks are " + RankSet::all(world_size).str();
}

[[noreturn]] void fail(std::string_view part, const std::string& why, int world_size) {
  throw UsageError("rank set: '" + std::string(part) + "' " + why + "; " + existing(world_size));
}

int existing_rank(std::string_view text, std::string_view part, int world_size) {
  const auto rank = protocol::whole_number<long>(text);
  if (!rank || text.front() == '-') fail(part, "is not a rank, a range, a slice or 'all'", world_size);
  if (*rank >= world_size) fail(part, "names a rank that is not in the session", world_size);
  return static_cast<int>(*rank);
}

/// Returns Python's slice over 0 … world_size-1, only with a step above zero.
RankSet slice(std::string_view part, int world_size) {
  std::vector<std::optional<long>> field;
  for (std::string_view rest = part;;) {
    const size_t colon = rest.find(':');
    const auto text = protocol::trimmed(rest.substr(0, colon));
    const auto value = protocol::whole_number<long>(text);
    if (!text.empty() && !value) fail(part, "is not a slice (begin:end:step)", world_size);
    field.push_back(value);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (field.size() > 3) fail(part, "is not a slice (begin:end:step)", world_size);
  field.resize(3);
  const long step = field[2].value_or(1);
  if (step <= 0) fail(part, "has a step that is not above zero", world_size);
  const auto from_end = [&](long index) { return index < 0 ? index + world_size : index; };
  const long begin = from_end(field[0].value_or(0)), end = from_end(field[1].value_or(world_size));
  if (begin < 0 || begin > world_size || end < 0 || end > world_size)
    fail(part, "reaches past the last rank", world_size);
  if (begin > end) fail(part, "is a reversed range", world_size);
  if (begin == end) fail(part, "names no rank", world_size);
  std::vector<int> ranks;
  for (long rank = begin; rank < end; rank += step) ranks.push_back(static_cast<int>(rank));
  return RankSet(std::move(ranks));
}

RankSet item(std::string_view part, int world_size) {
  if (part == "all") return RankSet::all(world_size);
  if (part.find(':') != std::string_view::npos) return slice(part, world_size);
  const size_t dash = part.find('-');
  if (dash == std::string_view::npos || dash == 0) return RankSet{existing_rank(part, part, world_size)};
  const int first = existing_rank(protocol::trimmed(part.substr(0, dash)), part, world_size);
  const int last = existing_rank(protocol::trimmed(part.substr(dash + 1)), part, world_size);
  if (first > last) fail(part, "is a reversed range", world_size);
  std::vector<int> ranks;
  for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
  return RankSet(std::move(ranks));
}

}  // namespace

RankSet::RankSet(std::initializer_list<int> ranks) : RankSet(std::vector<int>(ranks)) {}

RankSet::RankSet(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  std::sort(ranks_.begin(), ranks_.end());
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
}

RankSet RankSet::all(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  return RankSet(std::move(ranks));
}

bool RankSet::contains(int rank) const { return std::binary_search(ranks_.begin(), ranks_.end(), rank); }

void RankSet::insert(int rank) {
  if (ranks_.empty() || ranks_.back() < rank) return ranks_.push_back(rank);
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (at == ranks_.end() || *at != rank) ranks_.insert(at, rank);
}

void RankSet::erase(int rank) { std::erase(ranks_, rank); }

RankSet RankSet::operator|(const RankSet& other) const {
  RankSet result;
  std::set_union(begin(), end(), other.begin(), other.end(), std::back_inserter(result.ranks_));
  return result;
}

RankSet RankSet::operator&(const RankSet& other) const {
  RankSet result;
  std::set_intersection(begin(), end(), other.begin(), other.end(), std::back_inserter(result.ranks_));
  return result;
}

RankSet RankSet::operator-(const RankSet& other) const {
  RankSet result;
  std::set_difference(begin(), end(), other.begin(), other.end(), std::back_inserter(result.ranks_));
  return result;
}

std::string RankSet::str() const {
  if (ranks_.empty()) return "none";
  std::string text;
  for (size_t i = 0; i < ranks_.size();) {
    size_t j = i;
    while (j + 1 < ranks_.size() && ranks_[j + 1] == ranks_[j] + 1) ++j;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks_[i]);
    if (j > i) text += '-' + std::to_string(ranks_[j]);
    i = j + 1;
  }
  return text;
}

std::string RankSet::words() const { return (size() == 1 ? "rank " : "ranks ") + str(); }

RankSet parse_rank_set(std::string_view spec, int world_size) {
  std::string_view text = protocol::trimmed(spec);
  const bool opened = text.starts_with('['), closed = text.ends_with(']');
  if (opened != closed) fail(spec, "has a bracket without its partner", world_size);
  if (opened) text = protocol::trimmed(text.substr(1, text.size() - 2));
  if (text.empty()) fail(spec, "names no rank", world_size);

  RankSet included, excluded;
  bool only_exclusions = true;
  for (;;) {
    const size_t comma = text.find(',');
    auto part = protocol::trimmed(text.substr(0, comma));
    if (part.empty()) fail(spec, "has an empty part", world_size);
    if (part.front() == '^') {
      excluded = excluded | item(protocol::trimmed(part.substr(1)), world_size);
    } else {
      included = included | item(part, world_size);
      only_exclusions = false;
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  const RankSet result = (only_exclusions ? RankSet::all(world_size) : included) - excluded;
  if (result.empty()) fail(spec, "names no rank", world_size);
  return result;
}

std::ostream& operator<<(std::ostream& stream, const RankSet& set) { return stream << set.str(); }

void to_json(nlohmann::json& json, const RankSet& set) { json = set.ranks(); }

void from_json(const nlohmann::json& json, RankSet& set) { set = RankSet(json.get<std::vector<int>>()); }

}  // namespace lockstep
