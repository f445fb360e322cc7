// Records what a rank receives from its collectives, and what stands for what it sends, so that the rank can run its last
// steps again without the others (collectives/record/). A rank has one recorder, which all of its groups share.
//
// Results are copied before anybody learns that the collective is done: on the thread of Gloo that has done it. Where
// the folder has no room, recording ends, says so, and the program goes on.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "collectives/record/rank_files.h"
#include "collectives/replay/call_text.h"

namespace lockstep::dist {

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  /// `about` says who the rank is (records.h); `steps` are kept. Throws Error.
  Recorder(const std::string& folder, int rank, int64_t steps, nlohmann::json about, SentText sent,
           std::shared_ptr<CollectiveLog> log);

  /// Returns a transport that records what goes through `inner`, Gloo's.
  c10::intrusive_ptr<c10d::Backend> record(c10::intrusive_ptr<c10d::Backend> inner, const std::string& group);

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

 private:
  friend class RecordingTransport;
  struct Begun {
    int64_t number = 0;
    uint64_t segment = 0;
  };
  Begun begin_call(const TransportCall& call, const std::string& group);
  void end_call(const Begun& begun, const std::vector<at::Tensor>& received, int source);
  void fail_call(const Begun& begun, const std::string& error);
  /// Under mutex_.
  void end_with(const std::string& reason);
  void append(uint64_t segment, RecordKind kind, const nlohmann::json& text,
              const std::vector<std::string_view>& payload = {});

  const int64_t steps_;
  const SentText sent_;
  const std::shared_ptr<CollectiveLog> log_;
  mutable std::mutex mutex_;
  RankFiles files_;
  int64_t calls_ = 0, calls_of_step_ = 0, step_ = -1;
  std::string stopped_;
};

}  // namespace lockstep::dist
