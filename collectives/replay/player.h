// Plays what a rank has received from its collectives, in place of the other ranks: each call of the program gets the
// recorded result once it has been compared with the recorded call, and what it sends with the recorded fingerprint. So
// a replay shows by itself how far it is the recorded run: at the first call that differs it ends.
#pragma once
#include <cstdint>
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
#include "collectives/watch/watched_backend.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

class Player : public std::enable_shared_from_this<Player> {
 public:
  /// Throws Error for a recording that can't be read or has no such rank. A payload that is damaged is found when it is
  /// used.
  Player(const std::string& path, int rank, SentText sent);

  const nlohmann::json& about() const { return recording_.about(rank_); }
  /// The calls of the groups that are made from here on are in this log.
  void set_log(std::shared_ptr<CollectiveLog> log) { log_ = std::move(log); }

  /// Returns the backend with which the recorded rank has made a group, since what a call sends depends on it.
  std::string backend_of(const std::string& group) const;
  /// Connects a group with nobody, in place of its transport. `group` is what the recording calls it.
  void connect(WatchedBackend& backend, const std::string& group, int64_t generation);
  /// Returns what the recorded rank has got from its exchange of inspectors among the ranks of `group`. Throws Error where
  /// it has made none here.
  std::string exchange(const std::string& group);
  /// Begins a cell of a session, which people call `number`. Throws Error where the recorded rank has made calls before that
  /// this run has not, and where it has not run the cell, or this part of it.
  struct CellBegun {
    size_t regroups = 0;  // how often the recorded rank was connected anew before it
    int next_group = 0;  // RankContext::next_group_number() there; 0: not known
  };
  CellBegun begin_cell(int64_t number);
  /// Returns to which ranks the recorded rank was connected anew next; nothing where it was not, before its next cell.
  std::optional<RankSet> take_regroup();
  /// Returns a transport for inspectors, whose ranks are not there.
  c10::intrusive_ptr<c10d::Backend> transport(const std::string& group, int group_rank, int size);

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
  /// The number of the next step of a session.
  int64_t take_step_number();
  /// Begins step `step`. Throws Error where the recorded rank has made calls that this run has not, or its cell ended before.
  Begun begin_step(int64_t step);
  /// Returns the record of the beginning of a step, or of the state then. Throws Error if there is none.
  const Record& record_of(RecordKind kind, int64_t step) const;
  /// Puts the tensors of a record into `tensors`. Throws Error where they do not fit.
  void fill_from(const Record& record, const std::vector<at::Tensor>& tensors) const;
  /// Returns the index of the first of `tensors` that has other bits than the record; -1: none.
  int first_difference(const Record& record, const std::vector<at::Tensor>& tensors) const;

  /// This run is no longer the recorded one. The first reason is kept. Throws Error with it.
  [[noreturn]] void depart(const std::string& reason);

  /// The user has asked for no more of the recording; `before`: than what comes before this step.
  void stop_here(std::optional<int64_t> before = std::nullopt);

  /// Says how far this run is the recorded one: how many collectives have had their result, in which steps; why this run
  /// departs, or where the recording ends, if it came so far; what of it was not reached, unless the user has asked for no
  /// more.
  struct Conclusion {
    std::string text;
    bool departed = false;  // this run is not the recorded one
    bool is_over = false;  // it has come to the end of the recording, or of what was asked for
    bool is_skipping = false;  // it is between steps that are left out
  };
  Conclusion conclusion() const;

 private:
  friend class PlayingTransport;
  struct RecordedCall {
    const Record* call = nullptr;
    int64_t number = 0, step = -1;
  };
  struct RecordedCell {
    int64_t number = 0;
    int64_t first_call = 0, first_step = 0;  // the next ones when it began
    int next_group = 0;
    std::optional<bool> succeeded = {};  // nothing: it has not ended
  };
  static constexpr size_t kNoCell = SIZE_MAX;
  c10::intrusive_ptr<c10d::Work> play(const TransportCall& call, const std::string& group);
  /// Returns the next recorded call of a group, of the step at hand, for a run that calls `now`. Under mutex_.
  RecordedCall next_call(const std::string& group, const nlohmann::json& now);
  /// Returns the bytes of a result, put together of the shares that ranks have kept. Nothing where one is missing, which
  /// `missing` names.
  std::optional<std::string> bytes_of_result(const Record& result, std::string& missing) const;
  void check_left_calls(int64_t step);
  void read_records(const std::vector<Record>& records);
  // Under mutex_.
  [[noreturn]] void depart_here(const std::string& reason);
  /// The cell at hand has made no such call, or step, when it was recorded.
  [[noreturn]] void end_cell_before(const std::string& what);
  /// The cell behind the one at hand; null: there is none.
  const RecordedCell* next_cell() const;
  std::string where() const;
  std::string left_here() const;
  std::string words_of_conclusion() const;

  Recording recording_;
  const int rank_;
  const SentText sent_;
  std::shared_ptr<CollectiveLog> log_;
  std::map<std::string, std::deque<RecordedCall>> calls_;  // by group, in order
  std::map<int64_t, const Record*> results_;  // by number of the call
  std::map<std::string, std::map<int, const Record*>> shares_;  // by name of the result, and number of the share
  std::map<int64_t, const Record*> steps_, states_;  // by step
  std::map<std::string, std::string> backends_;  // by group, as it was made first
  std::vector<RecordedCell> cells_;  // in order; of a session
  int64_t last_number_ = 0;  // of cells of any rank
  std::string stopped_;  // why recording ended before the rank did

  mutable std::mutex mutex_;
  int64_t step_ = -1, played_ = 0;
  std::set<int64_t> begun_;
  size_t cell_ = kNoCell;  // the one at hand
  int64_t next_step_ = 0;
  bool is_skipping_ = false, is_stopped_ = false;
  bool is_beyond_ = false;  // the cell at hand is none of the recording
  std::string departure_;
  std::string end_;  // where the recording ends, if this run has come there
  std::string failed_call_;  // a call that has failed when it was recorded, if none has ended since
};

}  // namespace lockstep::dist
