#include "ddp/restore.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "collectives/dist.h"
#include "collectives/session_group.h"
#include "ddp/saved_state.h"
#include "protocol/error.h"
#include "protocol/text.h"

namespace lockstep::ddp {
namespace {

using detail::device_of;
using detail::SavedOptimizer;
using nlohmann::json;

constexpr size_t kMostListed = 4;  // names of what was lost

/// Whether it can be sent as it is, and received.
bool can_be_copied(const torch::Tensor& tensor) {
  return tensor.layout() == torch::kStrided && at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
}

json description_of(const torch::Tensor& tensor) {
  return {{"shape", tensor.sizes().vec()}, {"dtype", static_cast<int>(tensor.scalar_type())}};
}

/// Whether both have the same bits.
bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return true;
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.detach().contiguous().reshape({-1}).view(torch::kUInt8);
  };
  return torch::equal(bytes(a), bytes(b));
}

/// Returns all names that ranks have of a kind of objects, in one order.
std::set<std::string> names_of(const std::vector<json>& all, const char* kind) {
  std::set<std::string> names;
  for (const json& each : all)
    for (const auto& [name, description] : each.at(kind).items()) names.insert(name);
  return names;
}

/// Whether all ranks have the object; with `alike`, also with the same description.
bool is_common(const std::vector<json>& all, const char* kind, const std::string& name, bool alike) {
  const json& first = all.front().at(kind);
  return std::ranges::all_of(all, [&](const json& each) {
    const json& theirs = each.at(kind);
    return theirs.contains(name) && (!alike || (first.contains(name) && theirs.at(name) == first.at(name)));
  });
}

std::string load_tensor(torch::optim::Optimizer& optimizer, const torch::Tensor& bytes) {
  const torch::Tensor here = bytes.cpu();
  return detail::load(optimizer, std::string(reinterpret_cast<const char*>(here.data_ptr<uint8_t>()),
                                             static_cast<size_t>(here.numel())));
}

std::vector<at::Generator> generators_of(const std::set<std::string>& devices) {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(torch::kCPU)};
  if (devices.contains("cuda")) generators.push_back(at::globalContext().defaultGenerator(torch::kCUDA));
  return generators;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RestoreReport& report) {
  out << "from rank " << report.from << " to " << report.to.words() << ":";
  for (const std::string& each : report.restored) out << "\n  " << each;
  for (const std::string& each : report.lost) out << "\n  lost: " << each;
  return out;
}

void Restoration::add_module(const std::string& name, torch::nn::Module& module, bool synchronises_buffers) {
  modules_.insert(name);
  std::unordered_map<const void*, size_t> known;  // several objects may share tensors
  for (size_t i = 0; i < tensors_.size(); ++i) known.emplace(tensors_[i].tensor.unsafeGetTensorImpl(), i);
  const auto add = [&](const std::string& key, const torch::Tensor& tensor, bool is_synchronised) {
    if (!tensor.defined()) return;
    if (!can_be_copied(tensor)) {
      left_.insert(name + "." + key + ": it is sparse, or its elements share memory");
      return;
    }
    const auto [found, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new)
      tensors_.push_back({name + "." + key, tensor, is_synchronised});
    else if (is_synchronised)
      tensors_[found->second].is_synchronised = true;
  };
  for (const auto& parameter : module.named_parameters()) add(parameter.key(), parameter.value(), false);
  for (const auto& buffer : module.named_buffers()) add(buffer.key(), buffer.value(), synchronises_buffers);
}

torch::Tensor& Restoration::tensor(const std::string& name) {
  return std::ranges::find(tensors_, name, &NamedTensor::name)->tensor;
}

json Restoration::description() const {
  json result = {{"modules", json::object()},
                 {"tensors", json::object()},
                 {"optimizers", json::object()},
                 {"wrappers", json::object()},
                 {"left", left_},
                 {"devices", json::object()},
                 {"is_new", dist::is_replacement()}};
  for (const std::string& name : modules_) result["modules"][name] = true;
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor, is_synchronised] : tensors_) {
    result["tensors"][name] = description_of(tensor);
    result["tensors"][name]["is_synchronised"] = is_synchronised;
    result["devices"][tensor.device().is_cuda() ? "cuda" : "cpu"] = true;
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  for (const auto& [name, optimizer] : optimizers_) {
    json groups = json::array();
    for (const auto& group : optimizer->param_groups()) {
      json& parameters = groups.emplace_back(json::array());
      for (const torch::Tensor& parameter : group.params()) {
        json& described = parameters.emplace_back(description_of(parameter));
        const auto known = names.find(parameter.unsafeGetTensorImpl());
        described["can_be_copied"] = can_be_copied(parameter);
        described["name"] = known == names.end() ? "" : known->second;
      }
    }
    result["optimizers"][name] = {{"type", typeid(*optimizer).name()}, {"groups", std::move(groups)}};
  }
  for (const auto& [name, wrapper] : wrappers_) {
    json& parameters = result["wrappers"][name] = json::array();
    for (const torch::Tensor& parameter : wrapper.module()->parameters())
      parameters.push_back(description_of(parameter));
  }
  return result;
}

RestoreReport Restoration::run() {
  const int size = dist::get_world_size();
  if (from_ < 0 || from_ >= size)
    throw ArgumentError(fmt::format("ddp::restore: there is no rank {}; ranks are 0 to {}", from_, size - 1));
  RestoreReport report{.from = from_, .to = to_, .restored = {}, .lost = {}};
  if (report.to.empty()) report.to = RankSet::all(size);
  report.to.erase(from_);
  if (!(report.to - RankSet::all(size)).empty())
    throw ArgumentError(fmt::format("ddp::restore: there is no rank {}", (report.to - RankSet::all(size)).str()));
  for (const auto& [name, wrapper] : wrappers_) wrapper.restore_full_precision();
  const std::vector<json> all = dist::all_gather_object(description());
  std::set<std::string> left;
  for (const json& each : all)
    for (const std::string text : each.at("left")) left.insert(text);
  report.lost.assign(left.begin(), left.end());
  const torch::NoGradGuard no_grad;
  const std::set<std::string> lost_tensors = copy_tensors(all, report);
  for (const std::string& name : names_of(all, "optimizers")) copy_optimizer(name, all, lost_tensors, report);
  for (const std::string& name : names_of(all, "wrappers")) copy_buckets(name, all, report);
  copy_generators(all, report);
  return report;
}

std::set<std::string> Restoration::copy_tensors(const std::vector<json>& all, RestoreReport& report) {
  const int me = dist::get_rank();
  const std::set<std::string> modules = names_of(all, "modules");
  const auto module_of = [&](const std::string& name) {
    std::string longest;
    for (const std::string& module : modules)
      if (name.starts_with(module + ".") && module.size() > longest.size()) longest = module;
    return longest;
  };
  std::map<std::string, std::vector<std::string>> different, missing;  // by module
  std::map<std::string, size_t> counts;
  std::map<std::string, torch::Tensor> received;  // that differ from mine
  std::vector<std::string> names;
  std::vector<uint8_t> flags;  // of each name: whether mine is the same
  for (const std::string& name : names_of(all, "tensors")) {
    ++counts[module_of(name)];
    if (!is_common(all, "tensors", name, /*alike=*/true)) {
      missing[module_of(name)].push_back(name);
      continue;
    }
    const torch::Tensor& mine = tensor(name);
    torch::Tensor theirs = mine.detach().clone();
    dist::broadcast(theirs, from_);
    const bool same = is_same(mine, theirs);
    names.push_back(name);
    flags.push_back(same ? 1 : 0);
    if (!same && report.to.contains(me)) received.emplace(name, std::move(theirs));
  }
  const auto flags_of_all = dist::all_gather_object(flags);
  const RankSet others = RankSet::all(dist::get_world_size()) - report.to;
  std::set<std::string> lost;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (std::ranges::none_of(others, [&](int rank) { return flags_of_all.at(static_cast<size_t>(rank))[i] == 0; }))
      continue;
    // What each forward takes from rank 0 is not lost while rank 0 lives.
    const bool is_synchronised = all.front().at("tensors").at(name).at("is_synchronised");
    if (!is_synchronised || report.to.contains(0)) different[module_of(name)].push_back(name);
    if (!is_synchronised) lost.insert(name);
  }
  for (auto& [name, theirs] : received)
    if (!lost.contains(name)) tensor(name).detach().copy_(theirs);
  for (const auto& [module, count] : counts) {
    const size_t restored = count - different[module].size() - missing[module].size();
    if (restored > 0)
      report.restored.push_back(fmt::format("{}: {} tensor{}", module, restored, restored == 1 ? "" : "s"));
    if (!different[module].empty())
      report.lost.push_back(protocol::listed(different[module], kMostListed) +
                            ": the other ranks do not agree on it, so rank " + std::to_string(from_) +
                            "'s is not what was lost");
    if (!missing[module].empty())
      report.lost.push_back(protocol::listed(missing[module], kMostListed) +
                            ": not all ranks have it with the same shape and type");
    lost.insert(missing[module].begin(), missing[module].end());
  }
  return lost;
}

std::string Restoration::difference_of(torch::optim::Optimizer& optimizer, const json& mine, const json& source) {
  std::string difference;
  if (mine != source) difference = fmt::format("it steps other parameters there than on rank {} (a shard)", from_);
  for (size_t group = 0; group < source.at("groups").size(); ++group)
    for (size_t i = 0; i < source["groups"][group].size(); ++i) {
      const json& described = source["groups"][group][i];
      if (described.at("name") != "") continue;  // copy_tensors() has compared it
      if (!described.at("can_be_copied").get<bool>()) {
        difference = "one of its parameters is sparse, or its elements share memory";
        continue;
      }
      const bool has_it = mine == source;
      torch::Tensor theirs =
          has_it
              ? optimizer.param_groups()[group].params()[i].detach().clone()
              : torch::empty(described.at("shape").get<std::vector<int64_t>>(),
                             torch::dtype(described.at("dtype").get<c10::ScalarType>()).device(device_of(optimizer)));
      dist::broadcast(theirs, from_);
      if (has_it && !is_same(optimizer.param_groups()[group].params()[i], theirs))
        difference = fmt::format(
            "parameters that it steps are of no module among the names of the session, and differ there from those of "
            "rank {}. Neither they nor their state are copied",
            from_);
    }
  return difference;
}

void Restoration::copy_optimizer(const std::string& name, const std::vector<json>& all,
                                 const std::set<std::string>& lost_tensors, RestoreReport& report) {
  if (!is_common(all, "optimizers", name, /*alike=*/false)) {
    report.lost.push_back(name + ": not all ranks have it");
    return;
  }
  const int me = dist::get_rank();
  const auto from = static_cast<size_t>(from_);
  const json& source = all[from].at("optimizers").at(name);
  torch::optim::Optimizer& optimizer = *optimizers_.at(name);
  size_t lost = 0;
  for (const json& group : source.at("groups"))
    for (const json& parameter : group) lost += lost_tensors.contains(parameter.at("name")) ? 1 : 0;
  if (lost > 0) {
    report.lost.push_back(fmt::format("{}: {} of its parameters {} not what was lost, so its state is none for them",
                                      name, lost, lost == 1 ? "is" : "are"));
    return;
  }
  const std::string difference =
      difference_of(optimizer, all[static_cast<size_t>(me)].at("optimizers").at(name), source);
  const SavedOptimizer saved = report.to.contains(me) ? SavedOptimizer() : detail::save(optimizer);
  const auto facts = dist::all_gather_object(json{
      {"difference", difference}, {"digest", saved.digest}, {"size", saved.bytes.size()}, {"problem", saved.problem}});
  std::map<std::string, RankSet> by_difference;
  for (const int rank : report.to) by_difference[facts[static_cast<size_t>(rank)].at("difference")].insert(rank);
  RankSet same = std::exchange(by_difference[""], {});
  for (const auto& [why, ranks] : by_difference)
    if (!ranks.empty()) report.lost.push_back(fmt::format("{}: the state that {} held: {}", name, ranks.words(), why));
  if (same.empty()) return;
  if (const std::string problem = facts[from].at("problem"); !problem.empty()) {
    report.lost.push_back(name + ": " + problem);
    return;
  }
  for (const int rank : RankSet::all(dist::get_world_size()) - report.to)
    if (const json& theirs = facts[static_cast<size_t>(rank)];
        theirs.at("difference") == "" && theirs.at("digest") != facts[from].at("digest")) {
      report.lost.push_back(
          fmt::format("{}: the other ranks do not agree on its state, so rank {}'s is not what was lost", name, from_));
      return;
    }
  torch::Tensor bytes = torch::empty({facts[from].at("size").get<int64_t>()}, torch::kUInt8);
  if (me == from_) std::ranges::copy(saved.bytes, bytes.data_ptr<uint8_t>());
  bytes = bytes.to(device_of(optimizer));
  dist::broadcast(bytes, from_);
  const auto problems = dist::all_gather_object(same.contains(me) ? load_tensor(optimizer, bytes) : std::string());
  for (const int rank : same)
    if (const std::string& problem = problems.at(static_cast<size_t>(rank)); !problem.empty()) {
      report.lost.push_back(fmt::format("{}: rank {} can't load it, and has no state: {}", name, rank, problem));
      same.erase(rank);
    }
  if (!same.empty()) report.restored.push_back(name + ": state and options");
}

/// The order in which gradients are summed depends on their places in the buckets.
void Restoration::copy_buckets(const std::string& name, const std::vector<json>& all, RestoreReport& report) {
  if (!is_common(all, "wrappers", name, /*alike=*/true)) {
    report.lost.push_back(name + ": not all ranks wrap it with the same parameters, so its buckets are not copied");
    return;
  }
  const DistributedModule& wrapper = wrappers_.at(name);
  std::vector<json> layout{json::object()};
  if (dist::get_rank() == from_) layout[0] = detail::layout_of(wrapper);
  dist::broadcast_object_list(layout, from_);
  detail::take_over(wrapper, layout[0]);
}

void Restoration::copy_generators(const std::vector<json>& all, RestoreReport& report) {
  const int me = dist::get_rank();
  RankSet fresh;
  for (const int rank : report.to)
    if (all[static_cast<size_t>(rank)].at("is_new").get<bool>()) fresh.insert(rank);
  if (fresh.empty()) return;
  std::vector<at::Generator> generators = generators_of(names_of(all, "devices"));
  std::vector<std::vector<uint8_t>> states;
  for (const at::Generator& generator : generators) {
    const torch::Tensor state = generator.get_state();
    states.emplace_back(state.data_ptr<uint8_t>(), state.data_ptr<uint8_t>() + state.numel());
  }
  const auto states_of_all = dist::all_gather_object(states);
  const auto& source = states_of_all.at(static_cast<size_t>(from_));
  if (fresh.contains(me)) dist::end_replacement();
  for (const int rank : RankSet::all(dist::get_world_size()) - fresh)
    if (states_of_all.at(static_cast<size_t>(rank)) != source) {
      report.lost.push_back(
          fmt::format("generators of {}: those of the other ranks differ, so rank {}'s are not what was lost; "
                      "set_seed() sets new ones",
                      fresh.words(), from_));
      return;
    }
  for (size_t i = 0; i < generators.size() && fresh.contains(me); ++i)
    generators[i].set_state(torch::tensor(source.at(i), torch::kUInt8));
  report.restored.push_back("generators of " + fresh.words());
}

}  // namespace lockstep::ddp
