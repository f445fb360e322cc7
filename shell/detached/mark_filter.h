// Leaves out of what a session draws what it has drawn for nobody, up to a mark that it writes when a terminal has come.
#pragma once
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "shell/processes/random_key.h"

namespace lockstep::shell {

class MarkFilter {
 public:
  using Clock = std::chrono::steady_clock;

  /// Leaves out what comes from here on, up to the mark that it returns, which no program can guess.
  std::string begin(Clock::time_point give_up) {
    mark_ = "\033_lockstep " + random_key() + "\033\\";
    kept_.clear();
    give_up_ = give_up;
    return mark_;
  }
  /// Leaves out nothing any more.
  void end() {
    mark_.clear();
    give_up_.reset();
  }
  /// Leaves out the mark alone: there may be nobody who writes it.
  void give_up() { give_up_.reset(); }
  /// Returns when to do that; nothing where it is done, or nothing is left out.
  std::optional<Clock::time_point> when_to_give_up() const { return give_up_; }

  /// Returns what is left of the next bytes.
  std::string pass(std::string bytes) {
    if (mark_.empty()) return bytes;
    const size_t before = kept_.size();
    kept_ += bytes;
    if (const size_t at = kept_.find(mark_); at != std::string::npos) {
      bytes = give_up_ || at <= before ? std::string() : kept_.substr(before, at - before);
      bytes += kept_.substr(at + mark_.size());
      end();
      return bytes;
    }
    kept_.erase(0, kept_.size() - std::min(kept_.size(), mark_.size() - 1));  // it may have begun
    return give_up_ ? std::string() : bytes;
  }

 private:
  std::string mark_, kept_;
  std::optional<Clock::time_point> give_up_;
};

}  // namespace lockstep::shell
