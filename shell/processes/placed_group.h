// A group whose ranks the session starts on its places: what RankGroup asks of a group, answered by the places. It stands
// above RankGroup for C++ (worker_group.h), and above JobGroup for Python (shell/jobs/python_group.h).
#pragma once
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shell/processes/placed_ranks.h"
#include "shell/processes/rank_group.h"

namespace lockstep::shell {

template <typename Group>
class PlacedGroup : public Group {
 public:
  ~PlacedGroup() override { this->ending_ = true; }  // what is left ends with the places, by force

  bool has_store() const override { return placed_.has_store(); }
  void kill(int rank) override { placed_.place_of(rank).kill(rank); }
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override { return placed_.describe(); }
  std::string places_text() const override { return placed_.places_text(); }
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const override {
    placed_.read_logs(ranks, recent);
  }
  int64_t clock_ahead_ns(int rank) const override { return placed_.place_of(rank).clock_ahead_ns(); }
  void send_object(const RankSet& ranks, protocol::Load load, std::string bytes) override {
    placed_.send_object(ranks, std::move(load), std::move(bytes));
  }

  /// The backend of all ranks, as SessionPlan has it. Known once they are connected.
  const std::string& backend() const { return placed_.backend(); }

 protected:
  /// The other arguments are those of `Group`, which come before its listener. They may be made of `places`, which are
  /// moved from after them.
  template <typename... OfGroup>
  PlacedGroup(RankPlaces&& places, RankGroup::Listener listener, OfGroup&&... of_group)
      : Group(std::forward<OfGroup>(of_group)..., std::move(listener)),
        placed_(std::move(places), this->hub_, placed_listener()) {}

  std::optional<RankExit> take_end(int rank) override { return placed_.end(rank); }
  std::array<std::string, 2> take_last_output(int rank, const std::array<int64_t, 2>& received) override {
    return placed_.place_of(rank).take_output(rank, received);
  }
  void begin_shutdown() override { placed_.end_soon(); }
  void give_up(int rank, const std::string& why) override {
    const std::string what = "it sent the session what can't be read: " + why;
    if (this->starting_) {
      this->start_error_ = "rank " + std::to_string(rank) + ": " + what;
    } else if (auto& last_words = this->at(rank).last_words; !last_words) {
      last_words.emplace();
      last_words->type = "protocol_error";
      last_words->message = what + "; its process was ended";
      kill(rank);
    }
  }

  PlacedRanks placed_;

 private:
  PlacedRanks::Listener placed_listener() {
    return {.started =
                [this](int rank, pid_t pid, const std::string& device) {
                  this->at(rank).info.pid = pid;
                  this->at(rank).info.device = device;
                },
            .failed = [this](const std::string& why) { this->fail_start(why); },
            .ended = [this](int rank) { this->process_ended(rank); },
            .store_ended = [this](const std::string& how,
                                  const std::string& last_lines) { this->store_has_ended(how, last_lines); },
            .warning = this->listener_.warning};
  }
};

}  // namespace lockstep::shell
