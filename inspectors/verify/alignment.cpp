#include "inspectors/verify/alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

// Wrappers put these before the names of the module within them.
constexpr std::pair<std::string_view, std::string_view> kWrappers[] = {
    {"module.", "which DistributedDataParallel and DataParallel put before the names of their module"},
    {"_orig_mod.", "which torch.compile puts before the names of its module"}};

// Files can be made to have a million names, each of a million characters: nothing here compares all with all.
using Names = std::set<std::string, std::less<>>;
constexpr int kMostWrappers = 16;  // around one another

Names tensor_names(const Subject& subject) {
  Names names;
  for (const Item& each : subject.items)
    if (each.tensor.defined() && each.kind != FindingKind::record) names.insert(each.name);
  return names;
}

bool all_begin_with(const Names& names, std::string_view prefix) {
  return !names.empty() &&
         std::ranges::all_of(names, [&](const std::string& each) { return each.starts_with(prefix); });
}

/// Keeps items under the prefix, without it; the others are removed. Returns how many.
int64_t keep_below(Subject& subject, std::string_view prefix) {
  const auto removed = std::erase_if(subject.items, [&](const Item& each) { return !each.name.starts_with(prefix); });
  for (Item& each : subject.items) each.name.erase(0, prefix.size());
  return static_cast<int64_t>(removed);
}

/// Returns the prefix under which `other` has most of `names`, and at least half of them.
std::optional<std::string> prefix_of(const Names& names, const Names& other) {
  std::map<std::string, size_t> found;
  for (const std::string& each : other)
    for (size_t dot = each.find('.'); dot != std::string::npos; dot = each.find('.', dot + 1))
      if (dot > 0 && names.contains(std::string_view(each).substr(dot + 1))) ++found[each.substr(0, dot + 1)];
  const auto best = std::ranges::max_element(found, {}, [](const auto& each) { return each.second; });
  return best != found.end() && 2 * best->second >= names.size() ? std::optional(best->first) : std::nullopt;
}

class Aligner {
 public:
  Aligner(std::vector<SavedReplica>& replicas, const std::vector<std::string>& names)
      : replicas_(replicas), names_(names) {}

  Alignment run() {
    if (!one_kind()) keep_common_kinds();
    if (!same_tensors()) {
      strip_wrappers();
      strip_dictionaries();
    }
    const bool sorted = std::ranges::any_of(replicas_, [](const SavedReplica& each) {
      return each.format == SavedFormat::checkpoint || each.format == SavedFormat::safetensors;
    });
    if (changed_ || sorted) order_as_first();
    // Attributes of a dictionary whose names are changed say nothing about its values.
    if (changed_)
      for (SavedReplica& each : replicas_) each.unseen.clear();
    return std::move(result_);
  }

 private:
  template <typename Function>
  bool all_agree(Function of) const {
    return std::ranges::all_of(replicas_, [&](const SavedReplica& each) { return of(each) == of(replicas_.front()); });
  }
  bool one_kind() const {
    return all_agree([](const SavedReplica& each) { return std::pair(each.format, each.is_module); });
  }
  bool same_tensors() const { return all_agree(tensor_names); }

  void leave_out(size_t replica, int64_t count, const std::string& noun) {
    if (count > 0) result_.left_out.push_back(fmt::format("{} of {}", counted(count, noun), names_[replica]));
  }

  /// Keeps tensors alone, since formats and models differ in what they keep besides. A checkpoint's folder has the
  /// values of a file of torch.save as well.
  void keep_common_kinds() {
    changed_ = true;
    const bool values = std::ranges::all_of(replicas_, [](const SavedReplica& each) {
      return (each.format == SavedFormat::python || each.format == SavedFormat::checkpoint) && !each.is_module;
    });
    for (size_t i = 0; i < replicas_.size(); ++i) {
      SavedReplica& replica = replicas_[i];
      const int64_t buffers = replica.is_module ? remove_unsaved_buffers(replica) : 0;
      const auto removed = std::erase_if(replica.items, [&](const Item& each) {
        return !each.tensor.defined() ? !values : each.kind == FindingKind::record;
      });
      leave_out(i, buffers, "buffer");
      leave_out(i, static_cast<int64_t>(removed), replica.is_module ? "attribute" : "value");
      for (Item& each : replica.items) {
        if (each.tensor.defined()) each.kind = FindingKind::tensor;
        each.trainable = false;
      }
    }
  }

  /// Removes buffers that state_dict() leaves out (register_buffer with persistent=False). Returns how many.
  static int64_t remove_unsaved_buffers(Subject& module) {
    constexpr std::string_view kAttribute = "_non_persistent_buffers_set";
    std::set<std::string> unsaved;
    for (const Item& each : module.items) {
      if (!each.name.ends_with(kAttribute)) continue;
      const std::string owner = each.name.substr(0, each.name.size() - kAttribute.size());
      size_t begin = each.value.find('\'');  // "{'a', 'b'}"
      for (size_t end; begin != std::string::npos; begin = each.value.find('\'', end + 1)) {
        end = std::min(each.value.find('\'', begin + 1), each.value.size());
        unsaved.insert(owner + each.value.substr(begin + 1, end - begin - 1));
      }
    }
    return static_cast<int64_t>(std::erase_if(module.items, [&](const Item& each) {
      return each.kind == FindingKind::buffer && unsaved.contains(each.name);
    }));
  }

  void strip_wrappers() {
    bool again = true;
    for (int i = 0; again && i < kMostWrappers; ++i) {
      again = false;
      for (const auto& [prefix, why] : kWrappers) {
        std::vector<bool> has;
        for (const SavedReplica& each : replicas_) has.push_back(all_begin_with(tensor_names(each), prefix));
        const auto count = std::ranges::count(has, true);
        if (count == 0 || count == std::ssize(has)) continue;
        for (size_t k = 0; k < has.size(); ++k) {
          if (!has[k]) continue;
          leave_out(k, keep_below(replicas_[k], prefix), "item");
          result_.renamed.push_back(fmt::format(
              "the names in {} are compared without `{}`, {}; load_state_dict of the bare module needs them "
              "without it",
              names_[k], prefix, why));
        }
        again = changed_ = true;
      }
    }
  }

  /// Serves a checkpoint {"model": state_dict, ...} beside a state dict.
  void strip_dictionaries() {
    std::vector<Names> tensors;
    for (const SavedReplica& each : replicas_) tensors.push_back(tensor_names(each));
    bool stripped = false;
    const auto smallest = std::ranges::min_element(tensors, {}, [](const Names& each) {
      size_t length = 0;
      for (const std::string& name : each) length += name.size();
      return std::pair(each.size(), length);
    });
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const bool apart =
          std::ranges::none_of(*smallest, [&](const std::string& each) { return tensors[i].contains(each); });
      const auto prefix = apart ? prefix_of(*smallest, tensors[i]) : std::nullopt;
      if (!prefix) continue;
      changed_ = stripped = true;
      leave_out(i, keep_below(replicas_[i], *prefix), "item");
      result_.renamed.push_back(
          fmt::format("of {} the tensors below `{}` are compared", names_[i], prefix->substr(0, prefix->size() - 1)));
    }
    if (!stripped) return;
    // What the smallest keeps besides its tensors is in no dictionary of the others.
    if (same_values()) return;
    for (size_t i = 0; i < replicas_.size(); ++i)
      leave_out(i,
                static_cast<int64_t>(
                    std::erase_if(replicas_[i].items, [](const Item& each) { return !each.tensor.defined(); })),
                "value");
  }

  bool same_values() const {
    return all_agree([](const SavedReplica& replica) {
      std::set<std::string> names;
      for (const Item& each : replica.items)
        if (!each.tensor.defined()) names.insert(each.name);
      return names;
    });
  }

  /// Formats sort names in ways of their own, and the order of a checkpoint's names depends on the number of ranks.
  void order_as_first() {
    std::map<std::string, size_t> index;
    for (const SavedReplica& replica : replicas_)
      for (const Item& each : replica.items) index.emplace(each.name, index.size());
    for (SavedReplica& replica : replicas_)
      std::ranges::stable_sort(replica.items, {}, [&](const Item& each) { return index.at(each.name); });
  }

  std::vector<SavedReplica>& replicas_;
  const std::vector<std::string>& names_;
  Alignment result_;
  bool changed_ = false;
};

}  // namespace

Alignment align(std::vector<SavedReplica>& replicas, const std::vector<std::string>& names) {
  return Aligner(replicas, names).run();
}

}  // namespace lockstep::inspect
