// An Exchange among threads of one process, each of which stands for a rank.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "inspectors/exchange/exchange.h"

namespace lockstep::inspect {

/// Created as a shared_ptr, since the exchanges share it.
class LocalRanks : public std::enable_shared_from_this<LocalRanks> {
 public:
  explicit LocalRanks(RankSet ranks);
  std::unique_ptr<Exchange> exchange(int rank);
  /// Called by a thread that can't continue: the calls of the other threads throw dist::Error.
  void give_up();

 private:
  friend class LocalExchange;
  /// Holds the values of one kind of exchange, by rank index.
  template <typename T>
  struct Slots {
    std::vector<T> values, result;
  };
  template <typename T>
  std::vector<T> gather(Slots<T>& slots, size_t rank_index, T value);

  const RankSet ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t exchanges_ = 0;
  bool given_up_ = false;
  Slots<Bytes> bytes_;
  Slots<at::Tensor> tensors_;
};

}  // namespace lockstep::inspect
