// A place that is this machine, whose ranks write through channels that are held here.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/last_output.h"
#include "shell/processes/rank_place.h"

namespace lockstep::shell {

class LocalPlace : public RankPlace {
 public:
  std::array<std::string, 2> take_output(int rank, const std::array<int64_t, 2>& received) final {
    const auto output = release_output(rank);
    if (!output) return {};
    const auto left = output->take(received);
    return {left[0].after(received[0]), left[1].after(received[1])};
  }
  /// Does the same where nobody here knows what has arrived.
  std::array<LeftOutput, 2> take_output(int rank) {
    const auto output = release_output(rank);
    return output ? output->take() : std::array<LeftOutput, 2>();
  }
  std::optional<std::string> put(const std::string&, const std::shared_ptr<const std::string>&) final {
    return std::nullopt;
  }
  std::function<void()> begin_read_logs(const std::vector<inspect::RankPicture*>& ranks,
                                        const inspect::LogPart& part) final {
    return [this, ranks, part] {
      for (inspect::RankPicture* each : ranks) read_log(*each, part);
    };
  }

 private:
  /// The output of a rank that has ended; null where it has been taken.
  virtual std::unique_ptr<LastOutput> release_output(int rank) = 0;
  virtual void read_log(inspect::RankPicture& rank, const inspect::LogPart& part) = 0;
};

}  // namespace lockstep::shell
