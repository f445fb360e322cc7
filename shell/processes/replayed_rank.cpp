#include "shell/processes/replayed_rank.h"

#include <algorithm>
#include <utility>

#include "shell/processes/local_ranks.h"

namespace lockstep::shell {
namespace {

class ReplayPlace : public RankPlace {
 public:
  ReplayPlace(const ReplayedRank& which, std::unique_ptr<LocalRanks> inner) : which_(which), inner_(std::move(inner)) {}

  int count() const override { return which_.world_size; }
  int local_first() const override { return which_.local_rank; }
  int local_size() const override { return which_.local_world_size; }

  void start(const StartRanks& given, Listener listener) override {
    StartRanks order = given;
    order.first = which_.rank;
    order.count = 1;
    order.identities = {given.identities.at(static_cast<size_t>(which_.rank))};
    listener.started = [this, all = listener.started](const RanksStarted& one) {
      RanksStarted started = one;
      const auto place = [this](auto& values) {
        std::remove_cvref_t<decltype(values)> of_all(static_cast<size_t>(which_.world_size));
        of_all.at(static_cast<size_t>(which_.rank)) = values.at(0);
        values = std::move(of_all);
      };
      place(started.pids);
      place(started.start_times);
      place(started.devices);
      all(started);
    };
    inner_->start(order, std::move(listener));
  }
  bool has_store() const override { return inner_->has_store(); }
  void kill(int rank) override {
    if (rank == which_.rank) inner_->kill(rank);
  }
  void end_soon() override { inner_->end_soon(); }
  std::string last_lines(int rank) override { return inner_->last_lines(rank); }
  std::array<std::string, 2> take_output(int rank, const std::array<int64_t, 2>& received) override {
    return rank == which_.rank ? inner_->LocalPlace::take_output(rank, received) : std::array<std::string, 2>();
  }
  std::function<void()> begin_read_logs(const std::vector<inspect::RankPicture*>& ranks,
                                        const inspect::LogPart& part) override {
    std::vector<inspect::RankPicture*> here;
    std::ranges::copy_if(ranks, std::back_inserter(here),
                         [this](const inspect::RankPicture* each) { return each->rank == which_.rank; });
    return inner_->begin_read_logs(here, part);
  }
  std::optional<std::string> put(const std::string&, const std::shared_ptr<const std::string>&) override {
    return std::nullopt;
  }

 private:
  const ReplayedRank which_;
  const std::unique_ptr<LocalRanks> inner_;
};

}  // namespace

std::unique_ptr<RankPlace> replayed_rank(EventLoop& loop, const ReplayedRank& which, SessionPlan plan,
                                         SessionDirectory& directory) {
  plan.threads = which.threads;
  std::map<std::string, std::string> environment = {{"LOCKSTEP_REPLAY", which.path}};
  if (which.until) environment["LOCKSTEP_REPLAY_UNTIL"] = std::to_string(*which.until);
  return std::make_unique<ReplayPlace>(
      which, std::make_unique<LocalRanks>(loop, std::move(plan), directory, directory.hub_endpoint(), std::nullopt,
                                          kLoopback, std::move(environment)));
}

}  // namespace lockstep::shell
