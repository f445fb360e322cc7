// A group whose ranks the session starts on its places: what RankGroup asks of a group, answered by the places. It stands
// above RankGroup for C++ (worker_group.h), and above JobGroup for Python (shell/jobs/python_group.h).
#pragma once
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/error.h"
#include "shell/processes/launcher.h"
#include "shell/processes/placed_ranks.h"
#include "shell/processes/rank_group.h"

namespace lockstep::shell {

template <typename Group>
class PlacedGroup : public Group {
 public:
  ~PlacedGroup() override { this->ending_ = true; }  // what is left ends with the places, by force

  bool restart(int number, int64_t generation, const std::function<bool()>& interrupted) override {
    // The last messages of the process before may still be on their way, or its end when it has just been killed.
    if (!wait_until_back(number, State::dead, interrupted)) return false;
    auto& rank = this->at(number);
    const RankInfo before = std::exchange(rank.info, RankInfo());  // first: it may speak while its place starts it
    rank.info.device = before.device;
    const auto end = std::exchange(rank.end, std::nullopt);
    rank.received = {};
    rank.last_words.reset();
    try {
      placed_.restart(number, generation);
    } catch (...) {
      rank.info = before;
      rank.end = end;
      throw;
    }
    rank.info.pid = placed_.pid(number);
    if (!wait_until_back(number, State::connected, interrupted)) return false;
    placed_.came_back(number, static_cast<pid_t>(rank.info.hello.pid));
    rank.info.pid = placed_.pid(number);
    prepare(number);
    return wait_until_back(number, State::ready, interrupted);
  }
  void grow(const SessionPlan& plan) override {
    placed_.grow(plan);
    Group::grow(plan);
  }
  bool can_restart(int rank) const override { return placed_.place_of(rank).can_restart(); }
  bool has_store() const override { return placed_.has_store(); }
  void kill(int rank) override { placed_.place_of(rank).kill(rank); }
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override { return placed_.describe(); }
  std::string places_text() const override { return placed_.places_text(); }
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, const inspect::LogPart& part) const override {
    placed_.read_logs(ranks, part);
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
      this->fail_start("rank " + std::to_string(rank) + ": " + what);
    } else if (auto& last_words = this->at(rank).last_words; !last_words) {
      last_words.emplace();
      last_words->type = "protocol_error";
      last_words->message = what + "; its process was ended";
      kill(rank);
    }
  }

  using State = RankInfo::State;

  /// A rank that was started again has connected.
  virtual void prepare(int rank) = 0;
  /// Says how a rank that is dead has ended.
  protocol::CellError obituary(int number) const {
    const auto& rank = this->at(number);
    protocol::CellError error;
    if (rank.last_words) error = *rank.last_words;
    error.root_cause = true;
    if (error.type.empty()) error.type = rank.end->signal != 0 ? signal_name(rank.end->signal) : "exit";
    if (error.message.empty()) error.message = "the process " + rank.end->words;
    error.message += rank.end->core + placed_.quoted_output(number);
    return error;
  }

  PlacedRanks placed_;

 private:
  // A rank needs a fraction of a second to start, or as long as importing torch from a cold disk takes.
  static constexpr std::chrono::seconds kRestartLimit{120};

  /// Returns false where it was interrupted. Throws StartError where the rank does not come that far.
  bool wait_until_back(int number, State wanted, const std::function<bool()>& interrupted) {
    const State& state = this->at(number).info.state;
    if (!this->loop_.run_until([&] { return state >= wanted || interrupted(); },
                               EventLoop::Clock::now() + kRestartLimit))
      throw StartError(fmt::format("rank {} did not {} within {} s and {} ended", number,
                                   wanted == State::dead ? "end" : "get ready", kRestartLimit.count(),
                                   wanted == State::dead ? "can't be" : "was"));
    if (state == State::dead && wanted != State::dead)
      throw StartError(fmt::format("rank {} could not start: {}", number, obituary(number).message));
    return state >= wanted;
  }

  PlacedRanks::Listener placed_listener() {
    return {.started =
                [this](int rank, pid_t pid, const std::string& device) {
                  RankInfo& info = this->at(rank).info;
                  info.pid = pid;
                  // A copy may have said hello, with its device, before its process is reported.
                  if (info.state == State::starting) info.device = device;
                },
            .failed = [this](const std::string& why) { this->fail_start(why); },
            .ended = [this](int rank) { this->process_ended(rank); },
            .store_ended = [this](const std::string& how,
                                  const std::string& last_lines) { this->store_has_ended(how, last_lines); },
            .warning = this->listener_.warning,
            .calls = this->listener_.calls};
  }
};

}  // namespace lockstep::shell
