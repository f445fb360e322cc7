#include "ddp/restore.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "collectives/dist.h"
#include "collectives/session_group.h"
#include "ddp/state.h"
#include "protocol/error.h"

namespace lockstep::ddp {
namespace {

using nlohmann::json;

json description_of(const torch::Tensor& tensor) {
  return {{"shape", tensor.sizes().vec()}, {"dtype", std::string(c10::toString(tensor.scalar_type()))}};
}

/// Whether both have the same bits.
bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return true;
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.detach().contiguous().reshape({-1}).view(torch::kUInt8);
  };
  return torch::equal(bytes(a), bytes(b));
}

std::string text_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  const size_t shown = std::min(names.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return names.size() > shown ? text + fmt::format(" and {} more", names.size() - shown) : text;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RestoreReport& report) {
  out << "from rank " << report.from << " to " << report.to.words() << ":";
  for (const std::string& each : report.restored) out << "\n  " << each;
  for (const std::string& each : report.lost) out << "\n  lost: " << each;
  return out;
}

void Restoration::add_module(const std::string& name, torch::nn::Module& module, bool synchronises_buffers) {
  std::unordered_map<const void*, size_t> known;  // several objects may share tensors
  for (size_t i = 0; i < tensors_.size(); ++i) known.emplace(tensors_[i].tensor.unsafeGetTensorImpl(), i);
  const auto add = [&](const std::string& key, const torch::Tensor& tensor, bool is_synchronised) {
    if (!tensor.defined()) return;
    const auto [found, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new) {
      tensors_.push_back({name + "." + key, tensor, is_synchronised});
      ++modules_[name];
    } else if (is_synchronised) {
      tensors_[found->second].is_synchronised = true;
    }
  };
  for (const auto& parameter : module.named_parameters()) add(parameter.key(), parameter.value(), false);
  for (const auto& buffer : module.named_buffers()) add(buffer.key(), buffer.value(), synchronises_buffers);
}

/// Describes what this rank has: tensors by name, and of each optimizer its parameters by name.
std::string Restoration::description() const {
  json result = {{"tensors", json::object()}, {"optimizers", json::array()}, {"is_new", dist::is_replacement()}};
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor, is_synchronised] : tensors_) {
    result["tensors"][name] = description_of(tensor);
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  for (const auto& [name, optimizer] : optimizers_) {
    json groups = json::array();
    for (const auto& group : optimizer->param_groups()) {
      json& parameters = groups.emplace_back(json::array());
      for (const torch::Tensor& parameter : group.params()) {
        json& described = parameters.emplace_back(description_of(parameter));
        const auto known = names.find(parameter.unsafeGetTensorImpl());
        described["name"] = known == names.end() ? "" : known->second;
      }
    }
    result["optimizers"].push_back({{"type", typeid(*optimizer).name()}, {"groups", std::move(groups)}});
  }
  return result.dump();
}

RestoreReport Restoration::run() {
  const int size = dist::get_world_size();
  if (from_ < 0 || from_ >= size)
    throw ArgumentError(fmt::format("ddp::restore: there is no rank {}; ranks are 0 to {}", from_, size - 1));
  RestoreReport report{.from = from_, .to = to_, .restored = {}, .lost = left_};
  if (report.to.empty()) report.to = RankSet::all(size);
  report.to.erase(from_);
  if (!(report.to - RankSet::all(size)).empty())
    throw ArgumentError(fmt::format("ddp::restore: there is no rank {}", (report.to - RankSet::all(size)).str()));
  for (const DistributedModule& wrapper : wrappers_) wrapper.restore_full_precision();
  const std::vector<std::string> descriptions = dist::all_gather_object(description());
  const torch::NoGradGuard no_grad;
  copy_tensors(descriptions, report);
  for (size_t i = 0; i < optimizers_.size(); ++i) copy_optimizer(i, descriptions, report);
  copy_buckets();
  RankSet fresh;
  for (int rank = 0; rank < size; ++rank)
    if (json::parse(descriptions[static_cast<size_t>(rank)]).at("is_new").get<bool>()) fresh.insert(rank);
  fresh = fresh & report.to;
  if (!fresh.empty()) copy_generators(fresh);
  if (fresh.contains(dist::get_rank())) dist::end_replacement();
  if (!fresh.empty()) report.restored.push_back("generators of " + fresh.words());
  return report;
}

void Restoration::copy_tensors(const std::vector<std::string>& descriptions, RestoreReport& report) {
  const int me = dist::get_rank();
  const RankSet others = RankSet::all(dist::get_world_size()) - report.to;
  std::vector<json> all;
  for (const std::string& each : descriptions) all.push_back(json::parse(each).at("tensors"));
  const json& source = all[static_cast<size_t>(from_)];
  std::map<std::string, std::vector<std::string>> different, missing;  // by module
  const auto module_of = [&](const std::string& name) {
    for (const auto& [module, count] : modules_)
      if (name.starts_with(module + ".")) return module;
    return name;
  };
  std::vector<std::pair<std::string, torch::Tensor>> received;  // that differ from mine
  std::vector<std::string> names;
  std::vector<uint8_t> flags;  // of each name: whether mine is the same
  for (const auto& [name, description] : source.items()) {  // in the order of names, which is the same on all ranks
    const bool is_common = std::ranges::all_of(all, [&, &name = name, &described = description](const json& theirs) {
      return theirs.contains(name) && theirs.at(name) == described;
    });
    if (!is_common) {
      missing[module_of(name)].push_back(name);
      continue;
    }
    torch::Tensor& mine = std::ranges::find(tensors_, name, &NamedTensor::name)->tensor;
    torch::Tensor theirs = mine.detach().clone();
    dist::broadcast(theirs, from_);
    const bool same = is_same(mine, theirs);
    names.push_back(name);
    flags.push_back(same ? 1 : 0);
    if (!same && report.to.contains(me)) received.emplace_back(name, std::move(theirs));
  }
  std::unordered_set<std::string> seen, not_shared;
  const auto flags_of_all = dist::all_gather_object(flags);
  for (const int rank : others) {
    const std::vector<uint8_t>& theirs = flags_of_all.at(static_cast<size_t>(rank));
    for (size_t i = 0; i < names.size(); ++i)
      if (theirs[i] == 0 && seen.insert(names[i]).second) {
        const bool is_synchronised = std::ranges::find(tensors_, names[i], &NamedTensor::name)->is_synchronised;
        if (!is_synchronised) not_shared.insert(names[i]);
        if (!is_synchronised || report.to.contains(0)) different[module_of(names[i])].push_back(names[i]);
      }
  }
  for (auto& [name, theirs] : received)
    if (!not_shared.contains(name))
      std::ranges::find(tensors_, name, &NamedTensor::name)->tensor.detach().copy_(theirs);
  for (const auto& [module, count] : modules_) {
    const size_t lost = different[module].size() + missing[module].size();
    if (count > lost) report.restored.push_back(fmt::format("{}: {} tensors", module, count - lost));
    if (!different[module].empty())
      report.lost.push_back(text_of(different[module]) + ": the other ranks do not agree on it, so rank " +
                            std::to_string(from_) + "'s is not what was lost");
    if (!missing[module].empty())
      report.lost.push_back(text_of(missing[module]) + ": not all ranks have it with the same shape and type");
  }
}

void Restoration::copy_optimizer(size_t index, const std::vector<std::string>& descriptions, RestoreReport& report) {
  auto& [name, optimizer] = optimizers_[index];
  std::vector<json> all;
  for (const std::string& each : descriptions) all.push_back(json::parse(each).at("optimizers").at(index));
  const json& source = all[static_cast<size_t>(from_)];
  RankSet same = report.to, other;
  for (const int rank : report.to)
    if (all[static_cast<size_t>(rank)] != source) other.insert(rank);
  same = same - other;
  // Parameters that no module here has may have other values on each rank: then the optimizer steps a shard.
  uint8_t agrees = 1;
  const bool all_alike =
      std::ranges::all_of(all, [&](const json& each) { return each.at("groups") == source.at("groups"); });
  if (all_alike) {
    for (const auto& group : optimizer->param_groups())
      for (const torch::Tensor& parameter : group.params()) {
        torch::Tensor theirs = parameter.detach().clone();
        dist::broadcast(theirs, from_);
        if (!is_same(parameter, theirs)) agrees = 0;
      }
  }
  const auto flags = dist::all_gather_object(agrees);
  for (const int rank : same)
    if (flags.at(static_cast<size_t>(rank)) == 0) other.insert(rank);
  same = same - other;
  if (!other.empty())
    report.lost.push_back(
        fmt::format("{}: the state that {} held: it steps other parameters there than on rank {} (a "
                    "shard)",
                    name, other.words(), from_));
  if (same.empty()) return;
  try {
    copy_state(*optimizer, same);
    report.restored.push_back(name + ": state and options");
  } catch (const ArgumentError& error) {
    report.lost.push_back(name + ": " + error.what());
  }
}

void Restoration::copy_state(torch::optim::Optimizer& optimizer, const RankSet& to) const {
  const int me = dist::get_rank();
  std::string bytes, problem;
  if (me == from_) {
    try {
      torch::serialize::OutputArchive archive;
      optimizer.save(archive);
      std::ostringstream stream;
      archive.save_to(stream);
      bytes = std::move(stream).str();
    } catch (const c10::Error& error) {  // a class of the user's that can't be saved
      problem = error.what_without_backtrace();
    }
  }
  std::vector<std::string> header{bytes.empty() ? "!" + problem : std::to_string(bytes.size())};
  dist::broadcast_object_list(header, from_);
  if (header[0].starts_with('!')) throw ArgumentError("it can't be saved: " + header[0].substr(1));
  auto tensor = torch::empty({static_cast<int64_t>(std::stoull(header[0]))}, torch::kUInt8);
  if (me == from_) std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<uint8_t>());
  dist::broadcast(tensor, from_);
  if (!to.contains(me)) return;
  std::istringstream stream(
      std::string(reinterpret_cast<const char*>(tensor.data_ptr<uint8_t>()), static_cast<size_t>(tensor.numel())));
  const auto& groups = optimizer.param_groups();
  const bool has_device = !groups.empty() && !groups.front().params().empty();
  torch::serialize::InputArchive archive;
  archive.load_from(stream, has_device ? groups.front().params().front().device() : torch::Device(torch::kCPU));
  optimizer.state().clear();
  optimizer.load(archive);
}

/// The order in which gradients are summed depends on their places in the buckets.
void Restoration::copy_buckets() const {
  for (const DistributedModule& wrapper : wrappers_) {
    std::vector<json> layout{json::object()};
    if (dist::get_rank() == from_) {
      json buckets = json::array();
      for (const Bucket& bucket : wrapper.buckets()) buckets.push_back(bucket.parameter_indices);
      layout[0] = {{"buckets", std::move(buckets)}, {"steps", wrapper.steps()}};
    }
    dist::broadcast_object_list(layout, from_);
    detail::state_of(wrapper)->take_over(layout[0].at("buckets").get<std::vector<std::vector<size_t>>>(),
                                         layout[0].at("steps").get<int64_t>());
  }
}

void Restoration::copy_generators(const RankSet& to) const {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(torch::kCPU)};
  if (!tensors_.empty() && !tensors_.front().tensor.device().is_cpu())
    generators.push_back(at::globalContext().defaultGenerator(tensors_.front().tensor.device()));
  for (at::Generator& generator : generators) {
    torch::Tensor state = generator.get_state();
    dist::broadcast(state, from_);
    if (to.contains(dist::get_rank())) generator.set_state(state);
  }
}

}  // namespace lockstep::ddp
