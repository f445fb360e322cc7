// Plays what a rank has received from its collectives, in place of the other ranks: each call of the program gets the
// recorded result once it has been compared with the recorded call, and what it sends with the recorded fingerprint. So
// a replay shows by itself how far it is the recorded run: at the first call that differs it ends.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "collectives/backend/backend.h"
#include "collectives/record/recording.h"
#include "collectives/replay/call_text.h"

namespace lockstep::dist {

class Player : public std::enable_shared_from_this<Player> {
 public:
  /// Throws Error for a recording that can't be read or has no such rank. A payload that is damaged is found when it is
  /// used.
  Player(const std::string& path, int rank, SentText sent);

  const nlohmann::json& about() const { return recording_.about(rank_); }
  /// The calls of the groups that are made from here on are in this log.
  void set_log(std::shared_ptr<CollectiveLog> log) { log_ = std::move(log); }

  /// Returns what connects a group: to nobody.
  std::shared_ptr<BackendConnector> connector(const std::string& group, int group_rank, int size);

  enum class Then {
    play,  // the step was recorded
    set_state,  // the same, but those before it were not: it begins with the recorded state
    skip,  // it was not recorded, and a later one was
    end,  // the recording ends before it
  };
  struct Begun {
    Then then{};
    const Record* step = nullptr;
    const Record* state = nullptr;  // null: none was recorded for this step
  };
  /// Begins step `step`. Throws Error where the recorded rank has made calls that this run has not.
  Begun begin_step(int64_t step);
  /// Returns the record of the beginning of a step, or of the state then. Throws Error if there is none.
  const Record& record_of(RecordKind kind, int64_t step) const;
  /// Puts the tensors of a record into `tensors`. Throws Error where they do not fit.
  void fill_from(const Record& record, const std::vector<at::Tensor>& tensors) const;
  /// Returns the index of the first of `tensors` that has other bits than the record; -1: none.
  int first_difference(const Record& record, const std::vector<at::Tensor>& tensors) const;

  /// This run is no longer the recorded one. The first reason is kept. Throws Error with it.
  [[noreturn]] void depart(const std::string& reason);

  /// Returns {"calls", "steps", "departure", "end", "left"}: how many collectives have had their result, in which steps that
  /// were begun; why this run departs, or where the recording ends, if it came so far; what of it was not reached.
  nlohmann::json summary() const;

 private:
  friend class PlayingTransport;
  struct RecordedCall {
    const Record* call = nullptr;
    int64_t number = 0, step = -1;
  };
  c10::intrusive_ptr<c10d::Work> play(const TransportCall& call, const std::string& group);
  void check_left_calls(int64_t step);
  /// Under mutex_.
  [[noreturn]] void depart_here(const std::string& reason);
  std::string where() const;
  std::string left_here() const;

  Recording recording_;
  const int rank_;
  const SentText sent_;
  std::shared_ptr<CollectiveLog> log_;
  std::map<std::string, std::deque<RecordedCall>> calls_;  // by group, in order
  std::map<int64_t, const Record*> results_;  // by number of the call
  std::map<int64_t, const Record*> steps_, states_;  // by step
  std::string stopped_;  // why recording ended before the rank did

  mutable std::mutex mutex_;
  int64_t step_ = -1, played_ = 0;
  std::set<int64_t> begun_;
  bool is_skipping_ = false;
  std::string departure_, end_;
};

}  // namespace lockstep::dist
