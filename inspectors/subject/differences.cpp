#include "inspectors/subject/differences.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "inspectors/findings/majority.h"
#include "inspectors/fingerprint/kernels.h"
#include "inspectors/fingerprint/strided.h"
#include "protocol/utf8.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

at::Tensor on_cpu(const at::Tensor& tensor) {
  return (tensor.device().is_cpu() ? tensor : tensor.cpu()).resolve_conj().resolve_neg();
}

Bytes bytes_of(const std::vector<Hash>& hashes) {
  Bytes bytes(hashes.size() * sizeof(Hash));
  if (!bytes.empty()) std::memcpy(bytes.data(), hashes.data(), bytes.size());
  return bytes;
}

std::vector<Hash> hashes_of(const Bytes& bytes) {
  std::vector<Hash> hashes(bytes.size() / sizeof(Hash));
  if (!bytes.empty()) std::memcpy(hashes.data(), bytes.data(), bytes.size());
  return hashes;
}

/// Returns a sum over elements, which does not depend on their order.
uint64_t hash_of_elements(const at::Tensor& tensor) {
  const StridedReader reader(tensor);
  const int64_t size = reader.element_size();
  Bytes buffer(static_cast<size_t>(kChunkBytes));
  uint64_t sum = 0;
  for (int64_t begin = 0; begin < reader.bytes(); begin += kChunkBytes) {
    const int64_t count = std::min(kChunkBytes, reader.bytes() - begin);
    const uint8_t* data = reader.read(begin, count, buffer.data());
    for (int64_t i = 0; i < count; i += size) {
      uint64_t parts[2] = {};
      std::memcpy(parts, data + i, static_cast<size_t>(std::min<int64_t>(size, 16)));
      sum += kernels::mix(parts[0] + 0x9e3779b97f4a7c15ULL * kernels::mix(parts[1] + 1));
    }
  }
  return sum;
}

/// Has the chunks in which some rank differs from the source, as many as the budget allows.
struct ChunkChoice {
  std::vector<int64_t> chunks;
  bool complete = true;
};

ChunkChoice choose(const std::vector<std::vector<Hash>>& by_rank, size_t source, int64_t& budget) {
  ChunkChoice choice;
  for (size_t c = 0; c < by_rank[source].size(); ++c) {
    const bool differs = std::any_of(by_rank.begin(), by_rank.end(),
                                     [&](const std::vector<Hash>& each) { return each[c] != by_rank[source][c]; });
    if (!differs) continue;
    if (budget < kChunkBytes) {
      choice.complete = false;
      break;
    }
    budget -= kChunkBytes;
    choice.chunks.push_back(static_cast<int64_t>(c));
  }
  return choice;
}

/// The source broadcasts its chunks, and each rank compares its own with them.
Difference compare_chunks(Exchange& exchange, const at::Tensor& tensor, const ItemDifference& item,
                          const ChunkChoice& choice, const Tolerance& tolerance) {
  Difference difference;
  if (choice.chunks.empty()) return difference;
  const StridedReader reader(tensor);
  const auto size_of = [&](int64_t chunk) { return std::min(kChunkBytes, reader.bytes() - chunk * kChunkBytes); };
  int64_t total = 0;
  for (const int64_t chunk : choice.chunks) total += size_of(chunk);
  const at::Tensor sent = at::empty({total}, at::kByte);
  auto* data = sent.mutable_data_ptr<uint8_t>();
  Bytes buffer(static_cast<size_t>(kChunkBytes));
  const bool source = exchange.rank() == item.source;
  int64_t offset = 0;
  if (source) {
    for (const int64_t chunk : choice.chunks) {
      const uint8_t* mine = reader.read(chunk * kChunkBytes, size_of(chunk), buffer.data());
      std::memcpy(data + offset, mine, static_cast<size_t>(size_of(chunk)));
      offset += size_of(chunk);
    }
  }
  exchange.broadcast(sent, item.source);
  if (source) return difference;
  for (const int64_t chunk : choice.chunks) {
    const uint8_t* mine = reader.read(chunk * kChunkBytes, size_of(chunk), buffer.data());
    compare_elements(tensor.scalar_type(), mine, data + offset, size_of(chunk),
                     chunk * kChunkBytes / reader.element_size(), tolerance, difference);
    offset += size_of(chunk);
  }
  return difference;
}

}  // namespace

bool ItemDifference::representation_only() const {
  if (!complete || difference.empty() || !value.empty()) return false;
  return std::all_of(difference.begin(), difference.end(), [](const Difference& each) { return each.count == 0; });
}

void vote(const RankSet& ranks, const std::vector<Hash>& votes, ItemDifference& difference) {
  const Majority majority = majority_of(ranks, votes);
  difference.faulty = majority.at_fault;
  difference.reference = majority.reference;
  difference.source = (majority.reference.empty() ? ranks : majority.reference).ranks().front();
}

std::vector<RankSet> classes_of(const std::vector<const ItemDifference*>& items, const RankSet& ranks) {
  std::map<std::vector<Hash>, RankSet> parties;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::vector<Hash> seen;
    for (const ItemDifference* item : items) {
      if (item->hash.size() != ranks.size()) return {};
      seen.push_back(item->hash[i]);
    }
    parties[seen].insert(ranks.ranks()[i]);
  }
  std::vector<RankSet> classes;
  for (const auto& [seen, party] : parties) classes.push_back(party);
  std::sort(classes.begin(), classes.end());
  if (classes.size() == ranks.size()) classes.clear();
  return classes;
}

std::string classes_text(const std::vector<RankSet>& classes, const About& about) {
  std::string text;
  RankSet alone;
  for (const RankSet& each : classes)
    if (each.size() == 1)
      alone.insert(each.ranks().front());
    else
      text += fmt::format("{}{} agree", text.empty() ? "" : ", ", about.words(each));
  if (!alone.empty())
    text += fmt::format(", {} {} with none", about.words(alone), alone.size() == 1 ? "agrees" : "agree");
  return text;
}

std::string values_text(const std::vector<std::string>& values, const About& about) {
  constexpr size_t kLongest = 60;
  std::vector<std::pair<std::string, RankSet>> parties;
  for (size_t i = 0; i < values.size(); ++i) {
    auto party =
        std::find_if(parties.begin(), parties.end(), [&](const auto& each) { return each.first == values[i]; });
    if (party == parties.end()) party = parties.insert(parties.end(), {values[i], RankSet{}});
    party->second.insert(about.rank_at(i));
  }
  // Long values with a common beginning are shown from shortly before their first difference.
  size_t common = parties.empty() ? 0 : parties.front().first.size();
  for (const auto& [value, party] : parties) {
    const auto difference =
        std::mismatch(value.begin(), value.end(), parties.front().first.begin(), parties.front().first.end());
    common = std::min(common, static_cast<size_t>(difference.first - value.begin()));
  }
  std::string text;
  for (const auto& [value, party] : parties) {
    const auto character_at = [&](size_t byte) {  // the begin of a character of UTF-8
      while (byte > 0 && byte < value.size() && is_continuation_byte(value[byte])) --byte;
      return byte;
    };
    const size_t from = value.size() > kLongest && common > kLongest / 2 ? character_at(common - kLongest / 6) : 0;
    const size_t to = value.size() - from > kLongest ? character_at(from + kLongest - 3) : value.size();
    const std::string shown =
        (from > 0 ? "..." : "") + value.substr(from, to - from) + (to < value.size() ? "..." : "");
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", shown, about.at(party));
  }
  return text;
}

std::vector<ItemDifference> find_differences(Exchange& exchange, const Subject& subject,
                                             const std::vector<Hash>& hashes, const Comparison& comparison) {
  std::vector<std::vector<Hash>> by_rank;
  for (const Bytes& each : exchange.gather(bytes_of(hashes))) by_rank.push_back(hashes_of(each));
  std::vector<ItemDifference> differences;
  for (size_t i = 0; i < hashes.size(); ++i) {
    std::vector<Hash> votes;
    for (const auto& each : by_rank) votes.push_back(each[i]);
    if (std::all_of(votes.begin(), votes.end(), [&](const Hash& each) { return each == votes[0]; })) continue;
    ItemDifference difference;
    difference.item = i;
    vote(exchange.ranks(), votes, difference);
    differences.push_back(std::move(difference));
  }
  look_closer(exchange, subject, hashes, comparison, differences);
  return differences;
}

void look_closer(Exchange& exchange, const Subject& subject, const std::vector<Hash>& hashes,
                 const Comparison& comparison, std::vector<ItemDifference>& differences) {
  // One exchange has the chunk hashes of all tensors that differ.
  std::vector<at::Tensor> tensors(differences.size());
  std::vector<Hash> mine;
  for (size_t d = 0; d < differences.size(); ++d) {
    const at::Tensor& tensor = subject.items[differences[d].item].tensor;
    if (!tensor.defined()) continue;
    tensors[d] = on_cpu(tensor);
    for (const Hash& each : chunk_hashes(tensors[d])) mine.push_back(each);
  }
  std::vector<std::vector<Hash>> by_rank;
  for (const Bytes& each : exchange.gather(bytes_of(mine))) by_rank.push_back(hashes_of(each));

  const auto& ranks = exchange.ranks().ranks();
  json facts = json::array();
  size_t first_chunk = 0;
  int64_t budget = comparison.detail_bytes;
  for (size_t d = 0; d < differences.size(); ++d) {
    ItemDifference& item = differences[d];
    const Hash& hash = hashes[item.item];
    if (!tensors[d].defined()) {
      facts.push_back({{"value", subject.items[item.item].value}, {"hash", hash}});
      continue;
    }
    const size_t chunks =
        static_cast<size_t>((static_cast<int64_t>(tensors[d].nbytes()) + kChunkBytes - 1) / kChunkBytes);
    std::vector<std::vector<Hash>> of_tensor;
    for (const auto& each : by_rank)
      of_tensor.emplace_back(each.begin() + static_cast<std::ptrdiff_t>(first_chunk),
                             each.begin() + static_cast<std::ptrdiff_t>(first_chunk + chunks));
    first_chunk += chunks;
    const size_t source = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), item.source) - ranks.begin());
    const ChunkChoice choice = choose(of_tensor, source, budget);
    item.complete = choice.complete;
    const Difference difference = compare_chunks(exchange, tensors[d], item, choice, comparison.tolerance);
    const Fingerprint mark = fingerprint(tensors[d]);
    facts.push_back({{"difference", difference},
                     {"norm", mark.norm},
                     {"not_finite", mark.nan_count + mark.inf_count},
                     {"hash", mark.hash},
                     {"elements", hash_of_elements(tensors[d])}});
    if (const Item& of = subject.items[item.item]; of.kind == FindingKind::rng)
      facts.back()["seed"] = std::stoull(of.value);
  }
  for (const json& of_rank : exchange.gather_json(facts)) {
    for (size_t d = 0; d < differences.size(); ++d) {
      const json& fact = of_rank.at(d);
      differences[d].hash.push_back(fact.at("hash"));
      if (fact.contains("value")) {
        differences[d].value.push_back(fact.at("value"));
        continue;
      }
      differences[d].difference.push_back(fact.at("difference"));
      differences[d].norm.push_back(fact.at("norm"));
      differences[d].not_finite.push_back(fact.at("not_finite"));
      differences[d].elements_hash.push_back(fact.at("elements"));
      if (fact.contains("seed")) differences[d].seed.push_back(fact.at("seed"));
    }
  }
}

}  // namespace lockstep::inspect
