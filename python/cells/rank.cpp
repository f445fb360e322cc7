#include "python/cells/rank.h"

#include "worker/cell/rank_names.h"

namespace lockstep::worker {
namespace {
Configuration& mutable_configuration() {
  static auto* const all = new Configuration;
  return *all;
}
}  // namespace

const Configuration& configuration() { return mutable_configuration(); }

}  // namespace lockstep::worker

namespace lockstep::python {

void set_rank(const nlohmann::json& facts) {
  worker::Configuration& all = worker::mutable_configuration();
  all.rank = facts.at("rank");
  all.world_size = facts.at("world_size");
  all.local_rank = facts.at("local_rank");
  all.node_rank = facts.at("node_rank");
  all.gpu_id = facts.at("gpu_id");
  all.device = facts.at("device");
  worker::name_rank(all);
}

}  // namespace lockstep::python
