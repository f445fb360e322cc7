// join() keeps this state in the wrappers that join together while it runs.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstddef>
#include <memory>

namespace lockstep::ddp::detail {

class State;

/// The modules that join together share it. A rank that is out of data answers for one after the other, so they must
/// run in this order.
struct JoinTurns {
  size_t modules = 1;
  size_t next = 0;  // the module whose forward is due
  const State* last = nullptr;  // the module whose forward came last
  c10::intrusive_ptr<c10d::Work> notice;  // this rank still trains: sent by the first module in each step
  torch::Tensor training;  // how many ranks still train, once the notice is done
};

/// Each module has its own.
struct JoinState {
  size_t index = 0;  // among the modules that join together
  std::shared_ptr<JoinTurns> turns;
  bool throw_on_early_termination = false;
  bool divide_by_initial_world_size = true;
  bool answered_first_of_static_graph = false;  // so the Reducer of this rank has not learnt the graph
};

}  // namespace lockstep::ddp::detail
