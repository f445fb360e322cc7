// An exchange is how the ranks of one inspection pass values to one another: over the SideChannel where they are
// processes, or within one process where saved replicas are compared (local_exchange.h). All functions are collective
// over ranks(); lists are by rank index, in the order of ranks().
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "inspectors/exchange/side_channel.h"

namespace lockstep::inspect {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual const RankSet& ranks() const = 0;
  size_t rank_index() const;

  /// Makes the first exchange of an inspection. Some ranks may not take part; `waits_when_late` as in InspectOptions.
  virtual ExchangeResult try_gather(const Bytes& value, bool waits_when_late) = 0;
  /// Returns every rank's bytes, of any length. This and all functions below throw dist::PeerLeft if a rank is lost.
  virtual std::vector<Bytes> gather(const Bytes& value) = 0;
  /// Sends a contiguous CPU tensor, of the same dtype and shape on all ranks.
  virtual void broadcast(at::Tensor tensor, int source_rank) = 0;
  virtual std::vector<at::Tensor> all_gather(at::Tensor tensor) = 0;

  std::vector<nlohmann::json> gather_json(const nlohmann::json& value);
  /// Lists may differ in length. Large data goes over the Gloo group, not through the store.
  std::vector<std::vector<int64_t>> gather_integers(const std::vector<int64_t>& mine);
  std::vector<std::string> gather_text(const std::string& mine);
  /// Returns when all ranks have entered it; on one machine, at times that differ by some tens of microseconds.
  void barrier();
};

/// Makes an exchange among `ranks`, which contain the calling rank. A single rank exchanges with itself.
std::unique_ptr<Exchange> make_exchange(const RankSet& ranks, std::chrono::milliseconds deadline);

}  // namespace lockstep::inspect
