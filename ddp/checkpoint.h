// Writes the objects that names of a session hold into files, one for each rank, and reads them back into the same
// names: %checkpoint and %restore.
//
//   ddp::Checkpoint("runs/a").add("net", net).add("optimizer", optimizer).add("step", step).write();   // on all ranks
//
// A checkpoint has tensors and vectors of them, modules (parameters, buffers, which are in training), wrappers
// (with the layout of their buckets), optimizers (state and options), plain values, and the generators. The report
// names other objects as left out. Gradients, and what a module holds without having registered it, are not written.
#pragma once
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/distributed_module.h"
#include "ddp/trained_object.h"

namespace lockstep::ddp {

namespace detail {

/// Whether a T is a number, an enumerator, a string, or a container of these.
template <typename T>
inline constexpr bool is_plain =
    (std::is_arithmetic_v<T> && !std::is_same_v<T, long double>) || std::is_enum_v<T> || std::is_same_v<T, std::string>;
template <typename T>
inline constexpr bool is_plain<std::vector<T>> = is_plain<T>;
template <typename T>
inline constexpr bool is_plain<std::deque<T>> = is_plain<T>;
template <typename T>
inline constexpr bool is_plain<std::list<T>> = is_plain<T>;
template <typename T>
inline constexpr bool is_plain<std::set<T>> = is_plain<T>;
template <typename T>
inline constexpr bool is_plain<std::unordered_set<T>> = is_plain<T>;
template <typename T, size_t N>
inline constexpr bool is_plain<std::array<T, N>> = is_plain<T>;
template <typename K, typename V>
inline constexpr bool is_plain<std::map<K, V>> = is_plain<K> && is_plain<V>;
template <typename K, typename V>
inline constexpr bool is_plain<std::unordered_map<K, V>> = is_plain<K> && is_plain<V>;
template <typename A, typename B>
inline constexpr bool is_plain<std::pair<A, B>> = is_plain<A> && is_plain<B>;
template <typename... T>
inline constexpr bool is_plain<std::tuple<T...>> = (is_plain<T> && ...);

}  // namespace detail

/// What was written or read, the same on all ranks.
struct CheckpointReport {
  std::string done;  // "written to /data/run: 2 files, 1.2 MB"
  std::vector<std::string> names;
  std::vector<std::string> left_out;  // "loader: its type, std::unique_ptr<…>, can't be written"
};
std::ostream& operator<<(std::ostream& out, const CheckpointReport& report);

class Checkpoint {
 public:
  /// The files are rank0.pt, rank1.pt, … in `folder`, on the machine of each rank.
  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}

  /// Adds an object that write() writes, and read() changes. It has to live until then.
  template <typename T>
  Checkpoint& add(const std::string& name, T&& given) {
    using Object = std::remove_cvref_t<T>;
    auto& object = detail::without_const(given);
    Entry entry{.name = name, .type = &typeid(Object), .is_constant = std::is_const_v<std::remove_reference_t<T>>};
    if constexpr (std::is_same_v<Object, torch::Tensor>) {
      entry.tensor = &object;
    } else if constexpr (std::is_same_v<Object, std::vector<torch::Tensor>>) {
      if (entry.is_constant) return *this;  // its definition makes it again, and the size may be another one
      entry.tensors = &object;
    } else if constexpr (detail::is_plain<Object>) {
      if (entry.is_constant) return *this;  // its definition makes it again
      entry.value = object;
      entry.assign = [&object](const nlohmann::json& value) { object = value.template get<Object>(); };
    } else if constexpr (detail::is_trained<Object>()) {
      struct {
        Entry& entry;
        void wrapper(DistributedModule& wrapper) {
          entry.module = wrapper.module().get();
          entry.wrapper = wrapper;
        }
        void module(torch::nn::Module& module) { entry.module = &module; }
        void optimizer(torch::optim::Optimizer& optimizer) { entry.optimizer = &optimizer; }
        void schedule() {}
      } visitor{entry};
      detail::visit_trained(object, visitor);
    }
    entries_.push_back(std::move(entry));
    return *this;
  }

  /// Writes the files. Where a rank can't write its own, none is replaced. Collective over all ranks of the default
  /// group. Throws Error.
  CheckpointReport write();
  /// Reads the files, which have to be of one checkpoint of as many ranks. An object that does not fit keeps its value,
  /// and the report names it. Collective over all ranks of the default group. Throws Error where a file is missing or
  /// damaged; nothing is changed then.
  CheckpointReport read();

 private:
  struct Entry {  // one of the pointers is set, or assign; none where the object can't be written
    std::string name;
    const std::type_info* type = nullptr;
    bool is_constant = false;  // its memory can be written, and it can't be assigned
    torch::Tensor* tensor = nullptr;
    std::vector<torch::Tensor>* tensors = nullptr;
    torch::nn::Module* module = nullptr;
    std::optional<DistributedModule> wrapper = {};
    torch::optim::Optimizer* optimizer = nullptr;
    nlohmann::json value = nullptr;
    std::function<void(const nlohmann::json&)> assign = {};
  };
  struct File;
  std::string path() const;  // of this rank's file
  /// Adds the entry to the file. Returns why it can't be written, or nothing.
  static std::string write(const Entry& entry, File& file);
  /// Returns why the entry does not fit, or nothing.
  static std::string read(Entry& entry, File& file);

  std::string folder_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::ddp
