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
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

class RemoteHost : public RankProxy, public std::enable_shared_from_this<RemoteHost> {
 public:
  struct Listener {
    /// A rank of this user is there: of any job. Comes again when the rank says something else of itself.
    std::function<void(const JobMember&)> seen;
    /// The process of a rank has ended. `left` is what it has left.
    std::function<void(const JobMember&, SeenEnd, const inspect::Remains& left)> ended;
    /// So many faults have inspectors found in ranks of the job that has this folder there.
    std::function<void(const std::string& folder, int count)> faults;
    /// What a launcher there reports.
    std::function<void(const std::string& folder, const std::vector<SeenEnd>&)> report;
    /// The relay has begun to answer, or has become silent, or is lost.
    std::function<void(const RemoteHost&)> changed;
    /// The relay says this of ranks that it has started for a session.
    std::function<void(FromRelay&& message, std::vector<std::string> frames)> session = {};
  };

  /// Starts the relay. `program` is the path of lockstep on that machine. `hub`: the path of a hub here, to which the
  /// relay lets ranks come; empty: none. Throws StartError.
  static std::shared_ptr<RemoteHost> start(EventLoop& loop, const Host& host, const std::string& program,
                                           const std::string& hub, Listener listener);
  /// The same with a relay that has come by itself, to which `socket` is connected.
  static std::shared_ptr<RemoteHost> start(EventLoop& loop, const std::string& name, Descriptor socket,
                                           const std::string& hub, Listener listener);
  ~RemoteHost() override;

  /// Ends the relay's input, with which it ends. Does not wait, unlike the destructor.
  void leave();

  const std::string& name() const { return name_; }
  enum class State { starting, heard, silent, lost };
  State state() const { return state_; }
  /// Whether it has said something lately: it may be silent before the listener hears of it.
  bool answers() const;
  /// Whether the relay runs on the machine of this process.
  bool is_here() const;
  /// dist::machine_identity() of the machine; empty until it is heard.
  std::string machine() const { return hello_ ? hello_->machine : ""; }
  /// Says why nothing is known of its ranks: "its relay ended (ssh exited with code 255)", "no word for 12 s".
  std::string absence() const;
  /// Returns the message for a host that is heard after its silence was told of.
  std::string answers_again() const;

  /// How many GPUs ranks of a session can have there.
  int gpus() const { return hello_ ? hello_->gpus : 0; }
  /// How far CLOCK_MONOTONIC there is ahead of the one here.
  int64_t clock_ahead_ns() const { return monotonic_ahead_ns_; }
  /// Sends a message of a session.
  void tell(const ToRelay& message, std::vector<std::string> frames = {}, bool is_urgent = false) {
    write(message, std::move(frames), is_urgent);
  }
  /// Asks for the logs of `ranks`. Returns the number of the question, above 0.
  int64_t ask_logs(const std::vector<int>& ranks, const inspect::LogPart& part);
  /// Waits for them without serving anything else. Ranks whose logs do not come until `end` are missing from the result.
  std::map<int, nlohmann::json> take_logs(int64_t number, Clock::time_point end);

  /// The job of this folder there is judged here.
  void judge(const std::string& folder);
  void say_verdict(const std::string& folder, int exit_code, bool ends);

  std::string hub_path() const override { return hello_ ? hello_->hub : ""; }
  /// Messages that are not urgent come after the file, which goes there once.
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
  /// Reads what has arrived. Answers are kept, all else is taken later, by the loop.
  void read();
  void take_messages();
  void take(FromRelay&& message, std::vector<std::string> frames);
  /// Reads until there is what is waited for, or the host is gone.
  void serve_until(const std::function<bool()>& done, Clock::time_point end);
  void ping();
  void send_ping();
  /// The relay is given up; the loop lets the listener know.
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
  std::map<int64_t, std::map<int, nlohmann::json>> logs_;  // that have come, by the number of the request
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
  Clock::time_point heard_at_, pinged_at_;
  int64_t ping_ = 0, pinged_ns_ = 0;  // the ping that is under way
  Clock::duration shortest_trip_ = Clock::duration::max();
  int64_t clock_offset_ns_ = 0;  // of that machine's clock less this one's
  int64_t monotonic_ahead_ns_ = 0;
};

/// Adds what a rank of another machine has left.
void add_left(const inspect::Remains& left, inspect::Remains& remains);

}  // namespace lockstep::shell
