// What a cell sees without an #include: LibTorch, who this rank is, dist::, ddp::, inspect::, show(), get(),
// set_seed(), on_preempt(), arg(), progress(). The compiler builds its precompiled header from this file; the worker
// defines what is declared here.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>  // DistributedDataParallel::reducer() returns one

#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/dist.h"
#include "ddp/checkpoint.h"
#include "lockstep/ddp.h"
#include "lockstep/inspect.h"
#include "protocol/cell_abi.h"
#include "worker/cell/plot.h"
#include "worker/cell/progress.h"
#include "worker/cell/show.h"

namespace dist = lockstep::dist;
namespace ddp = lockstep::ddp;
namespace inspect = lockstep::inspect;
/// Magics write this instead of lockstep:: and inspect::, which are names like any: `bool lockstep = true;` takes one
/// over.
namespace __lockstep {
using namespace lockstep::inspect;
using lockstep::RankSet;
using lockstep::ddp::Checkpoint;
using lockstep::ddp::Restoration;
/// %page: what this cell shows from here on is shown in full.
void show_in_full() __asm__("lockstep_cell_show_in_full");
}  // namespace __lockstep

// Symbols have names of their own, so that no library's `rank` or `device` is taken for ours.
extern const int rank __asm__("lockstep_cell_rank");  // 0 to world_size - 1
extern const int world_size __asm__("lockstep_cell_world_size");  // ranks of the default group
extern const int local_rank __asm__("lockstep_cell_local_rank");  // among the ranks of this machine
extern const int node_rank __asm__("lockstep_cell_node_rank");  // of this machine among the session's
extern const int gpu_id __asm__("lockstep_cell_gpu_id");  // -1 on a CPU
extern const torch::Device device __asm__("lockstep_cell_device");

namespace lockstep {

/// Ends a cell that was interrupted; its state is kept. An exception like others, so that LibTorch hands it through;
/// who catches it and goes on meets it again at the next turn of the loop.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override;
};

/// get() returns it: a number or the process group, whichever is asked of it.
class GetResult {
 public:
  explicit GetResult(int number) : number_(number) {}
  explicit GetResult(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  operator int() const;  // throws std::logic_error for "pg"
  operator c10::intrusive_ptr<c10d::ProcessGroup>() const;
  c10d::ProcessGroup* operator->() const;
  friend std::ostream& operator<<(std::ostream& stream, const GetResult& got);

 private:
  int number_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

namespace detail {
std::string argument(std::string_view name);  // throws std::out_of_range that says how to pass it
bool has_argument(std::string_view name);
int64_t integer_argument(std::string_view name);
double real_argument(std::string_view name);
bool boolean_argument(std::string_view name);
}  // namespace detail

}  // namespace lockstep

/// Takes "ws" (world size), "rank", "grank" (rank in the session), "lrank" (rank on this machine) or "pg" (the process
/// group of all ranks). Throws std::invalid_argument for another name.
lockstep::GetResult get(std::string_view name);

/// %lib calls it: loads a shared library, whose symbols later cells see. Throws std::runtime_error with the loader's
/// words.
extern "C" void __lockstep_load_library(const char* library) __asm__("lockstep_cell_load_library");

/// Seeds LibTorch's generators of every device and std::rand. Local: other ranks keep theirs.
void set_seed(uint64_t seed);

/// Keeps `save` for a session that is asked to end: by SIGTERM, as Slurm sends it before it preempts or ends a job, or
/// by the signal of its option --signal. Each rank that has registered a function runs it then, after its cell, which
/// is interrupted. A later call replaces the function, and nullptr takes it away. Local.
void on_preempt(std::function<void()> save) __asm__("lockstep_cell_on_preempt");

namespace lockstep::detail {
struct Show {
  template <typename T>
  void operator()(T&& value, std::string_view label = {}) const {
    lockstep::show_here(value, label);
  }
};
}  // namespace lockstep::detail

/// show(x), show(x, "label"): shows a value where it stands, as the last expression of a cell is shown.
inline constexpr lockstep::detail::Show show;

/// show::options({.precision = 2, .threshold = 100}): how tensors are written, as torch.set_printoptions
/// (worker/cell/show.h). Of this rank.
///
/// show::plot({{"loss", losses}}): a chart (worker/cell/plot.h).
struct show {
  static void options(const lockstep::ShowOptions& options) { lockstep::set_show_options(options); }
  static void plot(const std::vector<lockstep::PlotSeries>& series, const lockstep::PlotOptions& options = {}) {
    lockstep::plot(series, options);
  }
};

/// A range whose loop shows its progress, in one line for all ranks of the cell:
///
///   for (auto& batch : progress(*loader, "epoch 1")) step(batch);
///   for (auto i : progress(1000)) step(i);                             // 0 to 999
///   for (auto& batch : progress(*loader, {.label = "epoch 1", .total = 250})) step(batch);
///
/// `range` is an lvalue, which has to outlive the loop, or a temporary, which is kept; or a number of turns. The
/// total is the range's size, or ProgressOptions::total; without either (a DataLoader knows none) turns are counted.
/// A loop within a loop is a line below it. Local: ranks may run different loops, or none. Costs some 50 ns a turn,
/// and at most five messages a second, for which the loop does not wait.
template <typename Range>
auto progress(Range&& range, std::string_view label = {},
              const std::source_location& where = std::source_location::current()) {
  using Loop = lockstep::detail::LoopOver<Range>;
  return lockstep::ProgressRange<Loop>(lockstep::detail::loop_over<Loop>(std::forward<Range>(range)),
                                       {.label = std::string(label), .total = {}}, where);
}
template <typename Range>
auto progress(Range&& range, const lockstep::ProgressOptions& options,
              const std::source_location& where = std::source_location::current()) {
  using Loop = lockstep::detail::LoopOver<Range>;
  return lockstep::ProgressRange<Loop>(lockstep::detail::loop_over<Loop>(std::forward<Range>(range)), options, where);
}

/// Returns what `--arg NAME=VALUE` gave. Throws std::out_of_range where it was not given.
inline std::string arg(std::string_view name) { return lockstep::detail::argument(name); }

/// Takes a value for when it was not given, which also says how to read it: arg("epochs", 3) is an int.
template <typename T>
auto arg(std::string_view name, T fallback) {
  namespace detail = lockstep::detail;
  if constexpr (std::is_same_v<T, bool>)
    return detail::has_argument(name) ? detail::boolean_argument(name) : fallback;
  else if constexpr (std::is_integral_v<T>)
    return detail::has_argument(name) ? static_cast<T>(detail::integer_argument(name)) : fallback;
  else if constexpr (std::is_floating_point_v<T>)
    return detail::has_argument(name) ? static_cast<T>(detail::real_argument(name)) : fallback;
  else
    return detail::has_argument(name) ? detail::argument(name) : std::string(fallback);
}
