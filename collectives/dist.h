// Process groups and collectives for C++ programs on LibTorch, under the names and with the argument order of
// torch.distributed. A cell has it as `dist::`, a plain program as lockstep::dist.
//
// `group`: an empty Group is the default group. Ranks in arguments (`src`, `dst`) are ranks of the default group, as in
// torch.distributed; dist::group_src(r) and dist::group_dst(r) are ranks of `group`. Everything here is collective over
// the group (every rank of it must make the same calls in the same order), except where a comment says "local". Tensors
// are changed in place; they must be defined and dense (all_reduce takes sparse ones, too). Those that are not
// contiguous are copied, and copied back.
//
// With async_op = true a call returns at once and the tensors must not be touched before wait(). Without it, the call
// returns when this rank's part is done, and the Work it returns is complete. On NCCL both queue the operation on the
// device: without async_op, or after wait(), what the current stream is given next finds the result, and the host does
// not wait (barrier() does).
//
// A group has one backend for every tensor ("gloo", "nccl"), or one for each device ("cpu:gloo,cuda:nccl", the default
// of a session on GPUs). Gloo takes tensors of every device, with copies on the host. "shared_memory" is for the CPU:
// ranks of one machine exchange tensors through memory, and on several machines over Gloo.
//
// Throws (protocol/dist_error.h): ArgumentError before anything is sent; CollectiveMismatch, PeerLeft, Aborted,
// TimedOut from the call or from wait().
#pragma once
#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/debug.h>
#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "collectives/backend/backend.h"
#include "collectives/objects.h"
#include "collectives/work.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

using Store = c10::intrusive_ptr<c10d::Store>;

/// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR. PREMUL_SUM needs a factor, so its name alone is an ArgumentError; for
/// the backend nccl, c10d::makePreMulSum(factor) makes it (makeNCCLPreMulSum in older versions of LibTorch).
struct ReduceOp : c10d::ReduceOp {
  // NOLINTBEGIN(google-explicit-constructor): as those of c10d::ReduceOp
  ReduceOp(RedOpType op = SUM) : c10d::ReduceOp(checked(op)) {}
  ReduceOp(const c10d::ReduceOp& op) : c10d::ReduceOp(op) {}
  // NOLINTEND(google-explicit-constructor)

 private:
  static RedOpType checked(RedOpType op);
};

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);

// ---- groups ------------------------------------------------------------------------------------------------------

struct InitOptions {
  // "gloo", "shared_memory", "nccl" or "cpu:gloo,cuda:nccl". Empty: "cpu:gloo,cuda:nccl" where this process has
  // LibTorch with CUDA and the plug-in for GPUs, else "gloo".
  std::string backend;
  std::string init_method =
      "env://";  // env:// (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), file:///path, tcp://host:port
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of each collective
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);  // for the ranks to come together
  int world_size = -1;  // -1: from the environment
  int rank = -1;
  Store store = {};  // where it is given, init_method is not used
  bool check_collectives = true;
  std::string log_path;  // file of the collective log; empty: anonymous memory
};

/// Makes the default group. Where neither the arguments nor RANK and WORLD_SIZE give the rank, it has the ranks of the
/// session (after destroy_process_group()), or outside sessions this process alone. Throws Error when ranks do not come
/// within the limit, naming them.
void init_process_group(const InitOptions& options);
void init_process_group(const std::string& backend = "", const std::string& init_method = "env://",
                        std::chrono::milliseconds timeout = kDefaultTimeout, int world_size = -1, int rank = -1,
                        Store store = {});

/// Local. Ends `group`, or everything when it is empty.
void destroy_process_group(const Group& group = {});

/// Makes a group of `ranks` (sorted; no rank twice). Collective over all ranks of the default group: those outside get
/// a Group too, whose get_rank is -1 and which no collective accepts.
Group new_group(std::vector<int> ranks = {}, std::chrono::milliseconds timeout = kDefaultTimeout,
                const std::string& backend = "");

/// Makes groups of `group_size` ranks each, in the order of the ranks of `group`, whose size it must divide. Returns
/// this rank's group, and all of them; a rank outside of `group` gets a group that it is not in. Collective over all
/// ranks of the default group.
std::pair<Group, std::vector<Group>> new_subgroups(int group_size, const Group& group = {},
                                                   std::chrono::milliseconds timeout = kDefaultTimeout,
                                                   const std::string& backend = "");
/// Makes a group for each list of ranks of the default group; no rank is in two of them. Collective over all ranks of
/// the default group.
std::pair<Group, std::vector<Group>> new_subgroups_by_enumeration(
    const std::vector<std::vector<int>>& ranks_per_subgroup_list, std::chrono::milliseconds timeout = kDefaultTimeout,
    const std::string& backend = "");
/// Makes a group for each list of ranks of `parent`, counted in `parent`; no rank is in two of them. Returns this
/// rank's group; a rank of no list gets a group that it is not in. Collective over all ranks of the default group, not
/// of `parent` only.
Group split_group(const Group& parent, const std::vector<std::vector<int>>& split_ranks,
                  std::chrono::milliseconds timeout = kDefaultTimeout);

// These questions are local. get_rank and get_world_size return -1 for a group that this rank is not in.
bool is_available();
bool is_initialized();
bool is_backend_available(const std::string& backend);
bool is_gloo_available();
bool is_nccl_available();
bool is_mpi_available();
bool is_ucc_available();
bool is_xccl_available();
/// Whether liblockstep_interpose (CMake: Lockstep::interpose) replaces functions of the C library in this process, as
/// it does in a session. docs/dist.md says what a program without it does not get.
bool is_interposer_active();
/// Whether torchrun started this process.
bool is_torchelastic_launched();
/// Returns "gloo" for "cpu", "nccl" for "cuda" and "cuda:0". Throws ArgumentError for other devices.
std::string get_default_backend_for_device(const std::string& device);
int get_rank(const Group& group = {});
int get_world_size(const Group& group = {});
/// Returns the rank among those of this machine: LOCAL_RANK; where that is not set, `fallback_rank`; without it, the
/// number of lower ranks of the default group on this machine. Throws Error where none of these is known.
int get_node_local_rank(std::optional<int> fallback_rank = std::nullopt);
std::string get_backend(const Group& group = {});
std::string get_backend_config(const Group& group = {});  // "cpu:gloo", "cpu:gloo,cuda:nccl"
std::string get_group_name(const Group& group = {});  // "default", "group_1"
std::vector<int> get_process_group_ranks(const Group& group = {});
int get_global_rank(const Group& group, int group_rank);
int get_group_rank(const Group& group, int global_rank);
/// Returns the number of groups that this process knows, the default group included.
int get_pg_count();
/// Whether `op` reduces complex numbers: SUM, AVG and PREMUL_SUM do.
bool supports_complex(const c10d::ReduceOp& op);
/// The level that TORCH_DISTRIBUTED_DEBUG sets and c10d's Reducer reads.
using DebugLevel = c10d::DebugLevel;  // Off, Info, Detail
DebugLevel get_debug_level();
void set_debug_level(DebugLevel level);
void set_debug_level_from_env();
/// Returns the default group as an object, for a c10d::Reducer for example.
Group default_group();

/// Shuts the connections of all groups of this rank down. Collectives in flight, and later ones, throw Aborted with
/// `reason`. Tensors that no collective was working on keep their values. Local, from any thread, returns at once.
void abort(const std::string& reason);

/// Connects all groups again after abort(), a mismatch or a lost peer. Collective over `ranks`; `generation` must be
/// the same on all of them and greater than at the last call. The groups keep their objects, so modules that hold one
/// keep working. Groups with members outside `ranks` stay unusable, and their calls throw Error. Throws Error naming
/// the ranks that did not come.
void regroup(int64_t generation, const RankSet& ranks, std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// Returns the generation of the regroup that connected `group` last; 0 when none has, and for a group that dist did
/// not make. A collective of an earlier generation never completes. Local.
int64_t get_generation(const Group& group = {});

// ---- collectives -------------------------------------------------------------------------------------------------

/// `tensor` becomes the reduction over all ranks. AVG is the sum divided by the group's size (integers: towards zero);
/// SUM of bools is whether any is true. Gloo reduces uint8, int8, int32, int64, float16, bfloat16, float32, float64,
/// bool, complex64 and complex128, and sums sparse float32, float64, int32 and int64.
Work all_reduce(const at::Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, const Group& group = {},
                bool async_op = false);
/// `tensor` becomes rank `src`'s values on every rank.
Work broadcast(const at::Tensor& tensor, const Rank& src, const Group& group = {}, bool async_op = false);
/// `tensor` of rank `dst` becomes the reduction; on other ranks its contents are undefined afterwards.
Work reduce(const at::Tensor& tensor, const Rank& dst, const ReduceOp& op = ReduceOp::SUM, const Group& group = {},
            bool async_op = false);

/// tensor_list[i] becomes group rank i's `tensor`, whose dtype and shape it has. Undefined elements of the list are
/// allocated.
Work all_gather(std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor, const Group& group = {},
                bool async_op = false);
/// Does the same, and returns the list, newly allocated.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group = {});
/// `output` becomes the tensors of all ranks, one after the other (`input` [5, 3]: [world size · 5, 3]) or stacked
/// ([world size, 5, 3]); any shape with that many elements. An `input` without dimensions gives one element of each
/// rank.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const Group& group = {},
                            bool async_op = false);

/// `output` becomes the reduction of all ranks' input_list[this rank].
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& input_list,
                    const ReduceOp& op = ReduceOp::SUM, const Group& group = {}, bool async_op = false);
/// `output` becomes the reduction of this rank's part of `input`, which has the parts of all ranks one after the other,
/// or stacked, as for all_gather_into_tensor.
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOp& op = ReduceOp::SUM,
                           const Group& group = {}, bool async_op = false);

/// On `dst` gather_list[i] becomes group rank i's `tensor`; elsewhere the list must be empty.
Work gather(const at::Tensor& tensor, std::vector<at::Tensor>& gather_list, const Rank& dst = 0,
            const Group& group = {}, bool async_op = false);
/// Does the same, and returns the list, newly allocated, on `dst`, and an empty one elsewhere.
std::vector<at::Tensor> gather(const at::Tensor& tensor, const Rank& dst = 0, const Group& group = {});
/// `tensor` becomes scatter_list[group rank] of rank `src`; elsewhere the list must be empty.
Work scatter(const at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list = {}, const Rank& src = 0,
             const Group& group = {}, bool async_op = false);

/// output_list[i] becomes group rank i's input_list[this rank]. Sizes may differ, pairwise equal.
Work all_to_all(const std::vector<at::Tensor>& output_list, const std::vector<at::Tensor>& input_list,
                const Group& group = {}, bool async_op = false);
/// Splits along dimension 0; without split sizes the parts are even. `output` may be `input`.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, std::vector<int64_t> output_split_sizes = {},
                       std::vector<int64_t> input_split_sizes = {}, const Group& group = {}, bool async_op = false);

// The coalesced functions put several tensors of one dtype into one operation, so that one message is sent.

/// Does all_reduce of each tensor.
Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const ReduceOp& op = ReduceOp::SUM,
                          const Group& group = {}, bool async_op = false);
/// output_tensor_lists[r][i] becomes group rank r's input_tensor_list[i], whose shape it has.
Work all_gather_coalesced(const std::vector<std::vector<at::Tensor>>& output_tensor_lists,
                          const std::vector<at::Tensor>& input_tensor_list, const Group& group = {},
                          bool async_op = false);
/// Does all_gather_into_tensor of each pair.
Work all_gather_into_tensor_coalesced(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                                      const Group& group = {}, bool async_op = false);
/// Does reduce_scatter_tensor of each pair.
Work reduce_scatter_tensor_coalesced(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                                     const ReduceOp& op = ReduceOp::SUM, const Group& group = {},
                                     bool async_op = false);

Work barrier(const Group& group = {}, bool async_op = false);
/// A barrier that throws within `timeout`, naming the ranks that did not come. It always runs on Gloo, so that it does
/// not wait for devices.
void monitored_barrier(const Group& group = {}, std::chrono::milliseconds timeout = std::chrono::minutes(5),
                       bool wait_all_ranks = false);

// ---- point to point: collective over the two ranks only ----------------------------------------------------------

// A message goes to the recv of the same tag, a number from 0, in the order of the calls. The log has the tag.
void send(const at::Tensor& tensor, const Rank& dst, const Group& group = {}, int tag = 0);
/// Returns the sender's rank of the default group. Without `src`, the message may come from any rank.
int recv(const at::Tensor& tensor, const std::optional<Rank>& src = std::nullopt, const Group& group = {}, int tag = 0);
Work isend(const at::Tensor& tensor, const Rank& dst, const Group& group = {}, int tag = 0);
Work irecv(const at::Tensor& tensor, const std::optional<Rank>& src = std::nullopt, const Group& group = {},
           int tag = 0);

/// One operation of batch_isend_irecv is written P2POp(dist::isend, tensor, 1) or P2POp(dist::irecv, tensor,
/// dist::group_peer(0), group).
struct P2POp {
  using Send = decltype(&isend);
  using Receive = decltype(&irecv);
  P2POp(Send op, at::Tensor tensor, Rank peer, Group group = {}, int tag = 0)
      : sends(op != nullptr), tensor(std::move(tensor)), peer(peer), group(std::move(group)), tag(tag) {}
  P2POp(Receive, at::Tensor tensor, std::optional<Rank> peer, Group group = {}, int tag = 0)
      : sends(false), tensor(std::move(tensor)), peer(peer), group(std::move(group)), tag(tag) {}

  bool sends;
  at::Tensor tensor;
  std::optional<Rank> peer;  // empty: from any rank
  Group group;
  int tag;
};
/// Begins all operations, which must be of one group, in the order of the list, and returns a work for each. Every
/// argument is checked before the first begins. Where the device can, they are one operation, and two ranks that both
/// send first do not wait for each other; each work then stands for all of them.
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& p2p_op_list);

}  // namespace lockstep::dist
