#include "ddp/parameter_check.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "protocol/checksum.h"
#include "protocol/error.h"
#include "protocol/rank_set.h"

namespace lockstep::ddp::detail {
namespace {

constexpr size_t kShown = 5;  // differences that a message lists

// The first line is the problem. Then a line for each option (name, value) and for each tensor (its fields), tabs
// between.
std::string to_text(const ReplicaDescription& replica, std::string problem) {
  std::replace(problem.begin(), problem.end(), '\n', ' ');
  std::string text = problem + '\n';
  for (const auto& [name, value] : replica.options) text += name + '\t' + value + '\n';
  for (const auto& each : replica.tensors) {
    text += each.name + '\t' + each.shape + '\t' + each.dtype + '\t' + each.strides + '\t' + each.same_as + '\t' +
            (each.requires_grad ? '1' : '0') + (each.sparse ? '1' : '0') + '\n';
  }
  return text;
}

ReplicaDescription replica_in(const std::string& text, std::string& problem) {
  std::istringstream lines(text);
  std::getline(lines, problem);
  ReplicaDescription replica;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream rest(line);
    for (std::string field; std::getline(rest, field, '\t');) fields.push_back(field);
    if (fields.size() <= 2) {
      replica.options.emplace_back(fields.at(0), fields.size() == 2 ? fields[1] : "");
    } else {
      replica.tensors.push_back({fields.at(0), fields.at(1), fields.at(2), fields.at(3), fields.at(4),
                                 fields.at(5).at(0) == '1', fields.at(5).at(1) == '1'});
    }
  }
  return replica;
}

std::vector<torch::Tensor> all_gather(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const torch::Tensor& mine) {
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int rank = 0; rank < group->getSize(); ++rank) all[0].push_back(torch::empty_like(mine));
  std::vector<torch::Tensor> input{mine};
  group->allgather(all, input)->wait();
  return all[0];
}

// Collects what was found, and what to do about it, each advice once.
struct Findings {
  std::vector<std::string> found;
  std::vector<std::string> advice;

  void add(std::string what, const std::string& to_do) {
    found.push_back(std::move(what));
    if (std::find(advice.begin(), advice.end(), to_do) == advice.end()) advice.push_back(to_do);
  }
};

constexpr const char* kSameModule = "Construct the module with the same sizes on every rank.";

std::string advice_on(const TensorDescription& expected, const TensorDescription& found) {
  if (expected.shape != found.shape) return kSameModule;
  if (expected.same_as != found.same_as)
    return "Share the same tensors on every rank: a parameter that has two names on one rank is two parameters where "
           "each name has its own tensor.";
  if (expected.dtype != found.dtype)
    return "Convert the module to the same types on every rank before it is wrapped: for example "
           "module->to(torch::kFloat).";
  if (expected.requires_grad != found.requires_grad)
    return "Freeze the same parameters on every rank before the module is wrapped (requires_grad_(false)); those that "
           "one rank alone does not train need find_unused_parameters(true) instead.";
  if (expected.sparse != found.sparse) return "Give embeddings the same option sparse on every rank.";
  return "Give the parameters the same memory layout on every rank.";
}

std::string text_beside(const TensorDescription& found, const TensorDescription& expected) {
  if (found.shape != expected.shape || found.same_as == expected.same_as) return found.text();
  return found.same_as.empty() ? "a tensor of its own" : "the same tensor as " + found.same_as;
}

// Returns what `other` has that `reference` has not, and where they disagree.
Findings differences(const ReplicaDescription& reference, const std::string& reference_ranks,
                     const ReplicaDescription& other) {
  Findings findings;
  const std::map<std::string, std::string> set(other.options.begin(), other.options.end());
  for (const auto& [name, value] : reference.options) {
    const auto match = set.find(name);
    if (match == set.end() || match->second == value) continue;
    findings.add("the option " + name + " is " + match->second + ", and " + value + " on " + reference_ranks,
                 "Wrap the module with the same options on every rank.");
  }
  std::map<std::string, const TensorDescription*> expected, present;
  for (const auto& each : reference.tensors) expected[each.name] = &each;
  for (const auto& each : other.tensors) present[each.name] = &each;
  for (const auto& each : reference.tensors) {
    const auto match = present.find(each.name);
    if (match == present.end()) {
      findings.add(each.name + " " + each.text() + " is missing", kSameModule);
    } else if (*match->second != each) {
      findings.add(each.name + " is " + text_beside(*match->second, each) + ", and " +
                       text_beside(each, *match->second) + " on " + reference_ranks,
                   advice_on(each, *match->second));
    }
  }
  for (const auto& each : other.tensors) {
    if (!expected.count(each.name))
      findings.add(each.name + " " + each.text() + " does not exist on " + reference_ranks, kSameModule);
  }
  if (findings.found.empty()) {
    const auto mismatch =
        std::mismatch(reference.tensors.begin(), reference.tensors.end(), other.tensors.begin(), other.tensors.end());
    if (mismatch.first != reference.tensors.end()) {
      findings.add("the order differs: number " + std::to_string(mismatch.first - reference.tensors.begin()) + " is " +
                       mismatch.second->name + ", and " + mismatch.first->name + " on " + reference_ranks,
                   "Register parameters and submodules in the same order on every rank.");
    }
  }
  return findings;
}

}  // namespace

std::string TensorDescription::text() const {
  return shape + ' ' + dtype + (strides.empty() ? "" : " with strides " + strides) +
         (same_as.empty() ? "" : " (the same tensor as " + same_as + ")") + (requires_grad ? "" : " (no gradient)") +
         (sparse ? " (sparse gradient)" : "");
}

TensorDescription describe(const std::string& name, const torch::Tensor& tensor) {
  const auto text_of = [](const auto& value) {
    std::ostringstream text;
    text << value;
    return text.str();
  };
  const bool contiguous = tensor.layout() != torch::kStrided || tensor.is_contiguous();
  return {.name = name,
          .shape = text_of(tensor.sizes()),
          .dtype = text_of(tensor.scalar_type()),
          .strides = contiguous ? "" : text_of(tensor.strides()),
          .requires_grad = tensor.requires_grad()};
}

std::string difference(const std::vector<ReplicaDescription>& ranks) {
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
  std::string text = "DistributedDataParallel needs the same parameters, buffers and options on every rank.";
  std::vector<std::string> advice;
  for (size_t i = 1; i < alike.size(); ++i) {
    const auto& other = ranks[alike[i].front()];
    const auto [found, to_do] = differences(reference, reference_ranks, other);
    text += "\n  " + RankSet(alike[i]).words() + " (" + std::to_string(other.tensors.size()) + " tensors; " +
            reference_ranks + ": " + std::to_string(reference.tensors.size()) + "): ";
    for (size_t j = 0; j < std::min(found.size(), kShown); ++j) text += (j ? "; " : "") + found[j];
    if (found.size() > kShown) text += "; and " + std::to_string(found.size() - kShown) + " more";
    for (const auto& each : to_do) {
      if (std::find(advice.begin(), advice.end(), each) == advice.end()) advice.push_back(each);
    }
  }
  for (const auto& each : advice) text += "\n" + each;
  return text;
}

void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, torch::Device device,
                             const ReplicaDescription& mine, const std::string& problem) {
  const std::string text = to_text(mine, problem);
  const auto hashed =
      torch::tensor({static_cast<int64_t>(protocol::fnv1a(text)),
                     static_cast<int64_t>(protocol::fnv1a(text, protocol::kFnvBasis ^ 0x9e3779b97f4a7c15)),
                     static_cast<int64_t>(text.size()), static_cast<int64_t>(!problem.empty())},
                    torch::kLong);
  std::vector<torch::Tensor> fingerprints;
  for (const auto& fingerprint : all_gather(group, hashed.to(device))) fingerprints.push_back(fingerprint.cpu());
  int64_t longest = 0;
  bool all_agree = true;
  for (const auto& fingerprint : fingerprints) {
    longest = std::max(longest, fingerprint[2].item<int64_t>());
    all_agree = all_agree && fingerprint[3].item<int64_t>() == 0 && fingerprint.equal(fingerprints[0]);
  }
  if (all_agree) return;

  auto padded = torch::zeros({longest}, torch::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<uint8_t>());
  std::vector<ReplicaDescription> ranks;
  std::string problems;
  int rank = 0;
  for (const auto& gathered : all_gather(group, padded.to(device))) {
    const auto bytes = gathered.cpu();
    const auto length = fingerprints[rank][2].item<int64_t>();
    std::string theirs;
    ranks.push_back(replica_in(std::string(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), length), theirs));
    if (!theirs.empty()) problems += (problems.empty() ? "" : "\n") + RankSet{rank}.words() + ": " + theirs;
    ++rank;
  }
  throw ArgumentError(problems.empty() ? difference(ranks) : problems);
}

}  // namespace lockstep::ddp::detail
