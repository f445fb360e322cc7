// Process groups and collectives for C++ programs on LibTorch, under the names and with the argument order of
// torch.distributed. In a cell this is `dist::`; a plain program says lockstep::dist.
//
// `group`: an empty Group is the default group. Ranks in arguments (`src`, `dst`) are ranks of the default group, as in
// torch.distributed. Everything here is collective over the group (every rank of it must make the same calls in the
// same order), except where a comment says local. Tensors are changed in place; they must be defined and contiguous.
//
// With async_op = true a call returns at once and the tensors must not be touched before wait(). Without it, the call
// returns when this rank's part is done, and the Work it returns is complete.
//
// Throws (dist/errors.h): ArgumentError before anything is sent; CollectiveMismatch, PeerLeft, Aborted, TimedOut from
// the call or from wait().
#pragma once
#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "dist/errors.h"

namespace lockstep::dist {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Store = c10::intrusive_ptr<c10d::Store>;
using ReduceOp = c10d::ReduceOp;  // SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);

/// A collective in flight, or one that is done. Cheap to copy. Letting go of it does not cancel anything.
class Work {
 public:
  Work() = default;
  Work(c10::intrusive_ptr<c10d::Work> work, std::string label) : work_(std::move(work)), label_(std::move(label)) {}

  /// Returns when the result is in the tensors; throws what went wrong. `timeout` zero: the group's.
  bool wait(std::chrono::milliseconds timeout = std::chrono::milliseconds::zero()) const;
  /// Whether wait() would return (or throw) at once.
  bool is_completed() const;
  /// The rank (of the default group) that a recv without a source got its data from.
  int source_rank() const;
  const c10::intrusive_ptr<c10d::Work>& handle() const { return work_; }
  c10d::Work* operator->() const { return work_.get(); }
  friend std::ostream& operator<<(std::ostream& out, const Work& work);

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string label_;  // "all_reduce"
};

// ---- groups ------------------------------------------------------------------------------------------------------

struct InitOptions {
  std::string backend;  // "gloo", "nccl"; empty: nccl where a plug-in for the device is loaded, else gloo
  std::string init_method =
      "env://";  // env:// (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), file:///path, tcp://host:port
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of each collective
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);  // for the ranks to come together
  int world_size = -1;  // -1: from the environment
  int rank = -1;
  Store store = {};  // given: init_method is not used
  bool check_collectives = true;
  std::string log_path;  // file of the collective log; empty: anonymous memory
};

/// Makes the default group. Alone (RANK and WORLD_SIZE unset): a group of one. Throws Error when the ranks did not come
/// together, naming those that are missing.
void init_process_group(const InitOptions& options);
void init_process_group(const std::string& backend = "", const std::string& init_method = "env://",
                        std::chrono::milliseconds timeout = kDefaultTimeout, int world_size = -1, int rank = -1,
                        Store store = {});

/// Local. Ends `group`, or everything when it is empty.
void destroy_process_group(const Group& group = {});

/// A group of `ranks` (sorted; no rank twice). Collective over all ranks of the default group: those outside get a
/// Group too, whose get_rank is -1 and which no collective accepts.
Group new_group(std::vector<int> ranks = {}, std::chrono::milliseconds timeout = kDefaultTimeout,
                const std::string& backend = "");

// Local questions. get_rank and get_world_size are -1 for a group that this rank is not in.
bool is_available();
bool is_initialized();
bool is_backend_available(const std::string& backend);
int get_rank(const Group& group = {});
int get_world_size(const Group& group = {});
std::string get_backend(const Group& group = {});
std::string get_group_name(const Group& group = {});  // "default", "group_1"
std::vector<int> get_process_group_ranks(const Group& group = {});
int get_global_rank(const Group& group, int group_rank);
int get_group_rank(const Group& group, int global_rank);
/// The default group as an object that c10d (a Reducer, say) takes.
Group default_group();

/// Shuts the connections of all groups of this rank: collectives in flight, and those to come, throw Aborted with
/// `reason`. Tensors that no collective was working on keep their values. Local, from any thread, returns at once.
void abort(const std::string& reason);

/// After abort(), a mismatch or a lost peer: connects all groups again. Collective over `ranks`; `generation` must be
/// the same on all of them and greater than at the last call. The groups keep their objects, so modules that hold one
/// keep working. Groups with members outside `ranks` stay unusable and say so. Throws Error naming the ranks that did
/// not come.
void regroup(int64_t generation, const RankSet& ranks, std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// The generation of the regroup that connected `group` last, 0 when none has. What was begun under another one will not
/// end. Local; 0 for a group that dist did not make.
int64_t get_generation(const Group& group = {});

// ---- collectives -------------------------------------------------------------------------------------------------

/// `tensor` becomes the reduction over all ranks. AVG is the sum divided by the group's size (integers: towards zero).
Work all_reduce(const at::Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, const Group& group = {},
                bool async_op = false);
/// Rank `src`'s values on every rank.
Work broadcast(const at::Tensor& tensor, int src, const Group& group = {}, bool async_op = false);
/// The reduction in `tensor` of rank `dst`; on other ranks its contents are undefined afterwards.
Work reduce(const at::Tensor& tensor, int dst, const ReduceOp& op = ReduceOp::SUM, const Group& group = {},
            bool async_op = false);

/// tensor_list[i] becomes group rank i's `tensor`. Undefined elements of the list are allocated.
Work all_gather(std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor, const Group& group = {},
                bool async_op = false);
/// The list, newly allocated.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group = {});
/// `output`: the tensors of all ranks one after the other, world size × the elements of `input`.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const Group& group = {},
                            bool async_op = false);

/// `output` becomes the reduction of all ranks' input_list[this rank].
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list,
                    const ReduceOp& op = ReduceOp::SUM, const Group& group = {}, bool async_op = false);
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOp& op = ReduceOp::SUM,
                           const Group& group = {}, bool async_op = false);

/// On `dst` gather_list[i] becomes group rank i's `tensor`; elsewhere the list must be empty.
Work gather(const at::Tensor& tensor, std::vector<at::Tensor>& gather_list, int dst = 0, const Group& group = {},
            bool async_op = false);
/// The list on `dst`, newly allocated; empty elsewhere.
std::vector<at::Tensor> gather(const at::Tensor& tensor, int dst = 0, const Group& group = {});
/// `tensor` becomes scatter_list[group rank] of rank `src`; elsewhere the list must be empty.
Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list = {}, int src = 0,
             const Group& group = {}, bool async_op = false);

/// output_list[i] becomes group rank i's input_list[this rank]. Sizes may differ, pairwise equal.
Work all_to_all(const std::vector<at::Tensor>& output_list, const std::vector<at::Tensor>& input_list,
                const Group& group = {}, bool async_op = false);
/// Splits along dimension 0; empty split sizes: even parts.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, std::vector<int64_t> output_split_sizes = {},
                       std::vector<int64_t> input_split_sizes = {}, const Group& group = {}, bool async_op = false);

Work barrier(const Group& group = {}, bool async_op = false);
/// A barrier that throws within `timeout`, naming the ranks that did not come. Gloo only.
void monitored_barrier(const Group& group = {}, std::chrono::milliseconds timeout = std::chrono::minutes(5),
                       bool wait_all_ranks = false);

// ---- point to point: collective over the two ranks only ----------------------------------------------------------

void send(const at::Tensor& tensor, int dst, const Group& group = {}, int tag = 0);
/// Returns the sender's rank. Without `src`: from any rank.
int recv(const at::Tensor& tensor, std::optional<int> src = std::nullopt, const Group& group = {}, int tag = 0);
Work isend(const at::Tensor& tensor, int dst, const Group& group = {}, int tag = 0);
Work irecv(const at::Tensor& tensor, std::optional<int> src = std::nullopt, const Group& group = {}, int tag = 0);

// ---- values that are no tensors: anything nlohmann::json can hold ------------------------------------------------

namespace detail {
std::vector<std::vector<uint8_t>> all_gather_bytes(const std::vector<uint8_t>& bytes, const Group& group);
std::vector<std::vector<uint8_t>> gather_bytes(const std::vector<uint8_t>& bytes, int dst, const Group& group);
std::vector<uint8_t> broadcast_bytes(const std::vector<uint8_t>& bytes, int src, const Group& group);
void check_object_list(const char* function, size_t size, size_t expected);

template <typename T>
std::vector<uint8_t> to_bytes(const T& value) {
  return nlohmann::json::to_cbor(nlohmann::json(value));  // binary: every double comes back as it was, NaN too
}
template <typename T>
T from_bytes(const std::vector<uint8_t>& bytes) {
  return nlohmann::json::from_cbor(bytes).template get<T>();
}
}  // namespace detail

/// The values of all ranks, by group rank.
template <typename T>
std::vector<T> all_gather_object(const T& object, const Group& group = {}) {
  std::vector<T> list;
  for (const auto& bytes : detail::all_gather_bytes(detail::to_bytes(object), group))
    list.push_back(detail::from_bytes<T>(bytes));
  return list;
}
template <typename T>
void all_gather_object(std::vector<T>& object_list, const T& object, const Group& group = {}) {
  detail::check_object_list("all_gather_object", object_list.size(), static_cast<size_t>(get_world_size(group)));
  object_list = all_gather_object(object, group);
}
/// The values of all ranks on `dst`; empty elsewhere.
template <typename T>
std::vector<T> gather_object(const T& object, int dst = 0, const Group& group = {}) {
  std::vector<T> list;
  for (const auto& bytes : detail::gather_bytes(detail::to_bytes(object), dst, group))
    list.push_back(detail::from_bytes<T>(bytes));
  return list;
}
/// Every rank's list becomes rank `src`'s.
template <typename T>
void broadcast_object_list(std::vector<T>& object_list, int src = 0, const Group& group = {}) {
  auto list = detail::from_bytes<std::vector<T>>(detail::broadcast_bytes(detail::to_bytes(object_list), src, group));
  detail::check_object_list("broadcast_object_list", object_list.size(), list.size());
  object_list = std::move(list);
}

}  // namespace lockstep::dist
