#include "ddp/parameter_check.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include "protocol/rank_set.h"

namespace lockstep::ddp::detail {
namespace {

constexpr size_t kShown = 5;  // differences that a message lists

// FNV-1a, 64 bits.
uint64_t hash_of(const std::string& text, uint64_t seed) {
  uint64_t hash = 14695981039346656037ull ^ seed;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

// A record a line: name, tab, description. The first line is the problem.
std::string to_text(const std::vector<TensorDescription>& tensors, std::string problem) {
  std::replace(problem.begin(), problem.end(), '\n', ' ');
  std::string text = problem + '\n';
  for (const auto& [name, description] : tensors) text += name + '\t' + description + '\n';
  return text;
}

std::vector<TensorDescription> tensors_in(const std::string& text, std::string& problem) {
  std::istringstream lines(text);
  std::getline(lines, problem);
  std::vector<TensorDescription> tensors;
  for (std::string line; std::getline(lines, line);) {
    const auto tab = line.find('\t');
    tensors.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return tensors;
}

std::vector<torch::Tensor> all_gather(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const torch::Tensor& mine) {
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int rank = 0; rank < group->getSize(); ++rank) all[0].push_back(torch::empty_like(mine));
  std::vector<torch::Tensor> input{mine};
  group->allgather(all, input)->wait();
  return all[0];
}

// What `other` has that `reference` has not, and where they disagree.
std::vector<std::string> differences(const std::vector<TensorDescription>& reference,
                                     const std::string& reference_ranks, const std::vector<TensorDescription>& other) {
  const std::map<std::string, std::string> expected(reference.begin(), reference.end());
  const std::map<std::string, std::string> had(other.begin(), other.end());
  std::vector<std::string> found;
  for (const auto& [name, description] : reference) {
    const auto match = had.find(name);
    if (match == had.end()) {
      found.push_back(name + " " + description + " is missing");
    } else if (match->second != description) {
      found.push_back(name + " is " + match->second + ", and " + description + " on " + reference_ranks);
    }
  }
  for (const auto& [name, description] : other) {
    if (!expected.count(name)) found.push_back(name + " " + description + " does not exist on " + reference_ranks);
  }
  if (found.empty()) {
    const auto place = std::mismatch(reference.begin(), reference.end(), other.begin(), other.end());
    if (place.first != reference.end()) {
      found.push_back("the order differs: number " + std::to_string(place.first - reference.begin()) + " is " +
                      place.second->first + ", and " + place.first->first + " on " + reference_ranks);
    }
  }
  return found;
}

}  // namespace

TensorDescription describe(const std::string& name, const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << ' ' << tensor.scalar_type();
  if (tensor.layout() == torch::kStrided && !tensor.is_contiguous()) text << " with strides " << tensor.strides();
  if (!tensor.requires_grad()) text << " (no gradient)";
  return {name, text.str()};
}

std::string difference(const std::vector<std::vector<TensorDescription>>& ranks) {
  // The largest set of ranks that agree is the reference; among equals the one with the lowest rank.
  std::vector<std::vector<int>> alike;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const auto same = std::find_if(alike.begin(), alike.end(),
                                   [&](const auto& members) { return ranks[members.front()] == ranks[rank]; });
    same == alike.end() ? alike.push_back({rank}) : same->push_back(rank);
  }
  if (alike.size() < 2) return "";
  std::stable_sort(alike.begin(), alike.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });

  const auto& reference = ranks[alike.front().front()];
  const std::string reference_ranks = RankSet(alike.front()).words();
  std::string text = "DistributedDataParallel needs the same parameters and buffers on every rank.";
  for (size_t i = 1; i < alike.size(); ++i) {
    const auto& other = ranks[alike[i].front()];
    const auto found = differences(reference, reference_ranks, other);
    text += "\n  " + RankSet(alike[i]).words() + " (" + std::to_string(other.size()) + " tensors; " + reference_ranks +
            ": " + std::to_string(reference.size()) + "): ";
    for (size_t j = 0; j < std::min(found.size(), kShown); ++j) text += (j ? "; " : "") + found[j];
    if (found.size() > kShown) text += "; and " + std::to_string(found.size() - kShown) + " more";
  }
  return text + "\nConstruct the module with the same sizes on every rank.";
}

void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, torch::Device device,
                             const std::vector<TensorDescription>& tensors, const std::string& problem) {
  const std::string text = to_text(tensors, problem);
  const auto mine =
      torch::tensor({static_cast<int64_t>(hash_of(text, 0)), static_cast<int64_t>(hash_of(text, 0x9e3779b97f4a7c15)),
                     static_cast<int64_t>(text.size()), static_cast<int64_t>(!problem.empty())},
                    torch::kLong);
  std::vector<torch::Tensor> fingerprints;
  for (const auto& fingerprint : all_gather(group, mine.to(device))) fingerprints.push_back(fingerprint.cpu());
  int64_t longest = 0;
  bool well = true;
  for (const auto& fingerprint : fingerprints) {
    longest = std::max(longest, fingerprint[2].item<int64_t>());
    well = well && fingerprint[3].item<int64_t>() == 0 && fingerprint.equal(fingerprints[0]);
  }
  if (well) return;

  auto padded = torch::zeros({longest}, torch::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<uint8_t>());
  std::vector<std::vector<TensorDescription>> ranks;
  std::string problems;
  int rank = 0;
  for (const auto& gathered : all_gather(group, padded.to(device))) {
    const auto bytes = gathered.cpu();
    const auto length = fingerprints[rank][2].item<int64_t>();
    std::string theirs;
    ranks.push_back(tensors_in(std::string(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), length), theirs));
    if (!theirs.empty()) problems += (problems.empty() ? "" : "\n") + RankSet{rank}.words() + ": " + theirs;
    ++rank;
  }
  throw std::runtime_error(problems.empty() ? difference(ranks) : problems);
}

}  // namespace lockstep::ddp::detail
