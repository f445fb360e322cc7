// Ranks of a session on another machine, which its relay starts and watches.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shell/jobs/remote_host.h"
#include "shell/processes/last_output.h"
#include "shell/processes/rank_place.h"

namespace lockstep::shell {

class RemoteRanks : public RankPlace {
 public:
  /// Starts the relay, as RemoteHost::start(). Throws StartError.
  RemoteRanks(EventLoop& loop, const Host& host, const std::string& program, const std::string& hub);
  /// Takes a relay that has come by itself and starts one rank: number `local_rank` of `local_size` of its host.
  /// `carrier` has the connection, and lives as long as this.
  RemoteRanks(EventLoop& loop, const std::string& host, Descriptor socket, const std::string& hub, int local_rank,
              int local_size, std::shared_ptr<void> carrier);
  ~RemoteRanks() override { host_->leave(); }

  const RemoteHost& machine() const { return *host_; }
  /// Returns the ranks there that describe themselves in files: Python ones.
  std::vector<JobMember> members() const;
  /// Called when one of them has come, or describes itself otherwise than before.
  std::function<void()> members_changed;
  /// Sets how many of the session's ranks go there.
  void give(int count) { count_ = count; }

  std::string host() const override { return host_->name(); }
  int count() const override { return count_; }
  int local_first() const override { return local_first_; }
  int local_size() const override { return local_size_ > 0 ? local_size_ : count_; }
  void start(const StartRanks& order, Listener listener) override;
  Hub::Carry carry(const StartRanks& order) override;
  bool has_store() const override { return !store_ended_ && host_->state() != RemoteHost::State::lost; }
  void kill(int rank) override { host_->tell(KillRank{rank}, {}, /*is_urgent=*/true); }
  RankProcess restart(int rank, const std::string& identity, int64_t generation) override;
  bool can_restart() const override { return !order_.python && host_->state() != RemoteHost::State::lost; }
  void end_soon() override { host_->tell(EndSoon{}); }
  std::string last_lines(int rank) override;
  std::array<std::string, 2> take_output(int rank, const std::array<int64_t, 2>& received) override;
  std::function<void()> begin_read_logs(const std::vector<inspect::RankPicture*>& ranks,
                                        const inspect::LogPart& part) override;
  int64_t clock_ahead_ns() const override { return host_->clock_ahead_ns(); }
  std::optional<std::string> put(const std::string& name, const std::shared_ptr<const std::string>& bytes) override;

 private:
  RemoteHost::Listener host_listener();
  /// Takes a message of the relay about the ranks.
  void take(FromRelay&& message, std::vector<std::string> frames);
  /// Called when the host answers again, is silent, or is lost and the ranks with it.
  void host_changed();
  void take(const RanksStarted& started);
  void take(const RankEnded& ended, std::vector<std::string> frames);
  void take(FromRanks& sent, std::vector<std::string> frames);
  bool are_here(const RankSet& ranks) const;

  /// What a rank that has ended has left.
  struct Left {
    std::string lines;
    std::array<LeftOutput, 2> output;
    nlohmann::json log;  // with its last collective
  };

  const std::shared_ptr<void> carrier_;
  const std::shared_ptr<RemoteHost> host_;
  int count_ = 0, local_first_ = 0, local_size_ = 0;
  StartRanks order_;
  Listener listener_;
  std::vector<std::string> warnings_;  // before start()
  bool is_started_ = false, store_ended_ = false;
  bool has_warned_ = false;  // of messages that are none
  bool told_silent_ = false;
  std::map<int, Left> left_;  // by rank
  std::vector<int64_t> pids_;  // of the ranks
  std::map<int64_t, JobMember> seen_;  // Python ranks of this user there, by pid
};

}  // namespace lockstep::shell
