// Records what a rank receives from its collectives, and what stands for what it sends, so that the rank can run its last
// steps again without the others (collectives/record/). A rank has one recorder, which all of its groups share.
//
// Results are copied before anybody learns that the collective is done: on the thread of Gloo that has done it. Where
// the folder has no room, recording ends, says so, and the program goes on.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "collectives/record/rank_files.h"
#include "collectives/replay/call_text.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  /// `about` says who the rank is (records.h); `steps` are kept. Throws Error.
  Recorder(const std::string& folder, int rank, int64_t steps, nlohmann::json about, SentText sent,
           std::shared_ptr<CollectiveLog> log);

  /// Returns a transport that records what goes through `inner`, Gloo's or shared memory's. Another transport is returned
  /// as it is, and recording ends. `backend`: what the group was made with. `sharing`: ranks of the group, this one among
  /// them, that are recorded into the same file: of a result that all ranks get, each of them keeps a share.
  c10::intrusive_ptr<c10d::Backend> record(c10::intrusive_ptr<c10d::Backend> inner, const std::string& group,
                                           const std::string& backend, const RankSet& sharing, int64_t generation);

  /// Whether the state has to be given to begin_step() with step `step`.
  bool wants_state(int64_t step) const { return begins_segment(step, steps_); }
  /// Tensors, and what they mean, which only the program knows.
  struct Kept {
    nlohmann::json text;
    std::vector<at::Tensor> tensors;
  };
  /// `state`: what wants_state() asks for; empty otherwise. `at_begin`: generators and the batch.
  void begin_step(int64_t step, const Kept& at_begin, const std::optional<Kept>& state);
  /// Ends the recording, and says why, in it and on the standard error.
  void stop(const std::string& reason);

  /// What keeps the recording; empty: it goes on.
  std::string stopped() const;
  /// The groups of this rank are connected anew, to these ranks.
  void note_regroup(const RankSet& ranks);
  /// The calls of groups that are made from here on are in this log.
  void set_log(std::shared_ptr<CollectiveLog> log);

  // A session says where its cells begin and end, so that a replayed cell gets no results of a later one.
  /// `next_group`: RankContext::next_group_number().
  void begin_cell(int64_t number, int next_group);
  void end_cell(bool succeeded);

  /// Share number `index` of `count`.
  struct Share {
    size_t index = 0, count = 1;
  };
  struct Begun {
    int64_t number = 0;
    uint64_t segment = 0;
    std::string shared = {};  // the name of a result of which each rank keeps its share; empty: this rank keeps all
    Share share = {};
  };
  /// Begins an exchange of inspectors among the ranks of `group`, which end_exchange() or fail_call() ends.
  Begun begin_exchange(const std::string& group);
  void end_exchange(const Begun& begun, std::string_view received);
  void fail_call(const Begun& begun, const std::string& error);

 private:
  friend class RecordingTransport;
  Begun begin_call(const TransportCall& call, const std::string& group);
  /// Under mutex_.
  Begun append_call(nlohmann::json text, std::optional<uint64_t> segment = std::nullopt);
  void end_call(const Begun& begun, const std::vector<at::Tensor>& received, int source);
  /// Under mutex_.
  void end_with(const std::string& reason);
  void append(uint64_t segment, RecordKind kind, const nlohmann::json& text,
              const std::vector<std::string_view>& payload = {});

  const int rank_;
  const int64_t steps_;
  const SentText sent_;
  mutable std::mutex mutex_;
  std::shared_ptr<CollectiveLog> log_;
  int logs_ = 0;  // how many contexts this process has had
  RankFiles files_;
  int64_t calls_ = 0, calls_of_step_ = 0, step_ = -1;
  std::map<std::string, int> made_;  // how many groups of a name and of these ranks
  std::string stopped_;
};

}  // namespace lockstep::dist
