// Asks the I/O threads of ranks.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "shell/cells/cell_services.h"

namespace lockstep::shell {

class RankQueries {
 public:
  explicit RankQueries(const CellServices& services) : services_(services) {}

  /// Asks the live ones among `ranks`, and serves until they have answered or `limit` has passed. Ranks without an
  /// answer are missing from the result.
  std::map<int, protocol::Answer> ask(const RankSet& ranks, const protocol::Question& question,
                                      std::chrono::milliseconds limit);
  /// Takes an answer; one to a question that ask() does not wait for any more is dropped.
  void answered(int rank, protocol::Reply reply);

 private:
  const CellServices& services_;
  int64_t last_id_ = 0;
  std::map<int64_t, std::map<int, nlohmann::json>> bodies_;  // by question
};

}  // namespace lockstep::shell
