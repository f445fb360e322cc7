// Another machine on which ranks of this user run, as the relay there sees them (shell/relay/relay.h): which ranks, what
// they answer, how they end. Times of that machine's clock are turned into those of this one.
//
//   starting ─(hello)→ heard ⇄ silent ─(60 s)→ lost       lost as well when the relay ends
//
// Nothing that is lost comes back: the job is judged without these ranks, and the verdict says so.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "inspectors/remains/remains.h"
#include "protocol/descriptor.h"
#include "protocol/pipe_channel.h"
#include "shell/hosts/host.h"
#include "shell/hosts/tunnels.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/rank_ends.h"
#include "shell/jobs/relay_messages.h"
#include "shell/jobs/relay_outbox.h"
#include "shell/jobs/silence.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

class RemoteHost : public RankProxy, public std::enable_shared_from_this<RemoteHost> {
 public:
  struct Listener {
    /// Called when a rank of this user, of any job, is seen there, and when it describes itself otherwise than before.
    std::function<void(const JobMember&)> seen;
    /// Called when the process of a rank has ended. `left` is the evidence that it has left.
    std::function<void(const JobMember&, SeenEnd, const inspect::Remains& left)> ended;
    /// Called with the number of faults that inspectors have found in ranks of the job that has this folder there.
    std::function<void(const RemoteHost&, const std::string& folder, int count)> faults = [](auto&&...) {};
    /// Called with the report of a launcher there.
    std::function<void(const RemoteHost&, const std::string& folder, const std::vector<SeenEnd>&)> report =
        [](auto&&...) {};
    /// Called when the relay has begun to answer, has become silent, or is lost.
    std::function<void(const RemoteHost&)> changed;
    /// Called with a message about ranks that the relay has started for a session.
    std::function<void(FromRelay&& message, std::vector<std::string> frames)> session = {};
  };

  /// Starts the relay. `program` is the path of lockstep on that machine. `hub`: the path of a hub here, to which the
  /// relay lets ranks come; empty: none. Throws StartError.
  static std::shared_ptr<RemoteHost> start(EventLoop& loop, const Host& host, const std::string& program,
                                           const std::string& hub, Listener listener);
  /// Does the same with a relay that has come by itself, to which `socket` is connected.
  static std::shared_ptr<RemoteHost> start(EventLoop& loop, const std::string& name, Descriptor socket,
                                           const std::string& hub, Listener listener);
  ~RemoteHost() override;

  /// Ends the relay's input, with which it ends. Does not wait, unlike the destructor.
  void leave();

  const std::string& name() const { return name_; }
  enum class State { starting, heard, silent, lost };
  State state() const { return state_; }
  /// Whether the relay has answered lately. It may be silent before the listener is told.
  bool answers() const;
  /// Whether the relay runs on the machine of this process.
  bool is_here() const;
  /// dist::machine_identity() of the machine; empty until it is heard.
  std::string machine() const { return hello_ ? hello_->machine : ""; }
  /// Returns why nothing is known of its ranks: "its relay ended (ssh exited with code 255)", "no word for 12 s".
  std::string absence() const;
  /// Returns the message for a host that answers after its silence was reported.
  std::string answers_again() const;

  /// Returns the kind of its processors, as Linux names it; empty where that is not known.
  std::string processor() const { return hello_ ? hello_->processor : ""; }
  /// Returns how many GPUs ranks of a session can have there.
  int gpus() const { return hello_ ? hello_->gpus : 0; }
  /// Returns how far, in nanoseconds, CLOCK_MONOTONIC there is ahead of the one here.
  int64_t clock_ahead_ns() const { return monotonic_ahead_ns_; }
  /// Sends a message of a session.
  void tell(const ToRelay& message, std::vector<std::string> frames = {}, bool is_urgent = false) {
    write(message, std::move(frames), is_urgent);
  }
  /// Asks for the logs of `ranks`. Returns the number of the question, above 0.
  int64_t ask_logs(const std::vector<int>& ranks, const inspect::LogPart& part);
  /// Waits for them without serving anything else. Ranks whose logs do not come until `end` are missing from the result.
  std::map<int, nlohmann::json> take_logs(int64_t number, Clock::time_point end);

  /// Tells the relay that the job which has this folder there is judged here.
  void judge(const std::string& folder);
  void say_verdict(const std::string& folder, int exit_code, bool ends);

  std::string hub_path() const override { return hello_ ? hello_->hub : ""; }
  /// The file goes there once. Messages that are not urgent arrive after it.
  std::string put(const std::string& name, const std::shared_ptr<const std::string>& bytes) override;
  int64_t send(const std::vector<JobMember>& ranks, const nlohmann::json& request,
               std::chrono::milliseconds limit) override;
  std::map<int, AgentAnswer> receive(int64_t number, Clock::time_point end) override;
  void to_local_time(inspect::Evidence& evidence) const override;

 private:
  RemoteHost(EventLoop& loop, std::string name, std::string hub, Listener listener);
  void start(const Host& host, const std::string& program);
  void begin(Descriptor to, Descriptor from);
  void write(const ToRelay& message, std::vector<std::string> frames = {}, bool is_urgent = false);
  void carry(const Piece& piece, const std::string& bytes);
  /// Reads what has arrived. Keeps answers; the loop takes other messages later.
  void read();
  void take_messages();
  void take(FromRelay&& message, std::vector<std::string> frames);
  /// Reads until `done` is true, `end` has passed, or the host is gone.
  void serve_until(const std::function<bool()>& done, Clock::time_point end);
  void ping();
  void send_ping();
  void take(const Pong& pong);
  /// Gives the relay up. The loop lets the listener know.
  void hang_up(std::string why);
  void move_times(SeenEnd& end) const;
  JobMember member(const RankSeen& seen);

  EventLoop& loop_;
  const std::string name_;
  const Listener listener_;
  State state_ = State::starting;
  bool was_silent_ = false;  // after it was heard
  std::string launcher_;  // "ssh"
  std::string lost_words_;  // why it was given up
  std::unique_ptr<Child> child_;
  RelayOutbox outbox_;
  std::set<std::string> files_;  // that are there, by name
  Descriptor from_, has_messages_;
  std::string preface_;  // until the greeting: what a login shell has printed
  bool is_greeted_ = false;
  protocol::MessageAssembler assembler_;
  std::vector<std::pair<FromRelay, std::vector<std::string>>> messages_;
  // By the number of the request. Logs that take_logs() did not get in time are dropped.
  std::map<int64_t, std::optional<std::map<int, nlohmann::json>>> logs_;
  std::optional<RelayHello> hello_;
  std::map<int64_t, RankSeen> members_;  // by pid; not JobMember, which keeps its host
  struct Asked {
    std::map<int64_t, int> ranks;  // pid → rank
    std::optional<std::map<int, AgentAnswer>> answers;
  };
  std::map<int64_t, Asked> asked_;
  int64_t next_number_ = 1;
  const std::string hub_;
  Tunnels tunnels_;
  Deadline next_ping_;
  Silence silence_;
  Clock::time_point pinged_at_;
  int64_t ping_ = 0, pinged_ns_ = 0;  // the ping that is under way
  Clock::duration trip_ = Clock::duration::max();  // of the ping by which the clocks are known
  Clock::time_point clocks_known_at_;  // when that ping was answered
  int64_t clock_offset_ns_ = 0;  // of that machine's clock less this one's
  int64_t monotonic_ahead_ns_ = 0;
};

/// Adds what a rank of another machine has left.
void add_left(const inspect::Remains& left, inspect::Remains& remains);

}  // namespace lockstep::shell
