#include "shell/jobs/ticket_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "shell/hosts/network.h"
#include "shell/jobs/ray_launcher.h"
#include "shell/jobs/remote_ranks.h"
#include "shell/jobs/session_hosts.h"
#include "shell/link/link_server.h"
#include "shell/processes/deadline.h"
#include "shell/processes/launcher.h"
#include "shell/processes/random_key.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

using std::chrono::seconds;

constexpr double kComeLimit_s = 600;
constexpr seconds kSayEvery{2};
constexpr size_t kMostTold = 64;  // relays that are turned away
constexpr size_t kLongestHost = 255;  // bytes

/// Homes are what the machines of a cluster share.
std::string shared_path() {
  const char* const home = std::getenv("HOME");
  if (!home || *home != '/')
    throw StartError("HOME names no folder for the ticket: give one that all hosts see (--ticket)");
  return fmt::format("{}/.lockstep-ticket-{}", home, random_key().substr(0, 16));
}

/// The numbers that a relay has by its launcher.
struct Came {
  int rank = -1, world_size = 0, local_rank = 0, local_size = 1;
  std::string host;  // as it says: not checked
};

/// Returns what a relay calls its machine, as one line that is no longer than a name may be.
std::string host_name_of(std::string said) {
  std::erase_if(said, [](unsigned char each) { return each < 0x20 || each == 0x7F; });
  return without_controls(said.substr(0, kLongestHost));
}

Came numbers_of(const LinkPeer& peer) {
  const nlohmann::json& about = peer.about;
  Came came;
  try {
    came.rank = about.value("rank", -1);
    came.world_size = about.value("world_size", 0);
    came.local_rank = about.value("local_rank", 0);
    came.local_size = std::max(about.value("local_size", 1), came.local_rank + 1);
    came.host = host_name_of(about.value("host", ""));
  } catch (const nlohmann::json::exception&) {  // of another version: it is told so later
  }
  if (came.host.empty()) came.host = peer.address;
  return came;
}

/// What all places of the session share: it lives as long as one of them.
struct Ticket {
  std::string path;
  std::function<void(const LinkPeer&, Descriptor)> came;
  std::function<void(const std::string&)> says;
  int size = 0;  // of the session; 0: not known yet
  std::map<int, std::string> hosts;  // of the ranks that have come
  std::set<std::string> told;
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<Child> launcher;
  ~Ticket() {
    server.reset();  // with which the relays end, and the launcher after them
    if (launcher) launcher->ended_within(seconds(5));
    ::unlink(path.c_str());
  }
  /// It is told why, and so is the user: who has the ticket may not take the place of a rank that is there.
  void turn_away(const LinkPeer& peer, Descriptor socket, const Came& relay) {
    const auto has_come = hosts.find(relay.rank);
    const std::string why =
        has_come != hosts.end() ? fmt::format("rank {} has come already, from {}", relay.rank, has_come->second)
        : relay.rank < 0        ? fmt::format("all {} ranks have come", size)
                                : fmt::format("the session has {} ranks, and no rank {}", size, relay.rank);
    server->refuse(peer, std::move(socket), why);
    const std::string text =
        fmt::format("{}; another relay, from {}{}, is turned away", why, peer.address,
                    relay.host == peer.address ? "" : fmt::format(", which calls itself {}", relay.host));
    if (told.size() < kMostTold && told.insert(text).second) says(text);
  }
};

/// Waits for the ranks of one session.
class Gathering {
 public:
  Gathering(EventLoop& loop, const SessionOptions& options, const std::string& hub,
            const std::function<void(const std::string&)>& says)
      : loop_(loop),
        size_(options.num_processes.value_or(0)),
        program_(options.remote_program),
        hub_(hub),
        limit_s_(options.start_timeout_s.value_or(kComeLimit_s)),
        says_(says),
        report_(loop) {
    ticket_->path = options.ticket.empty() ? shared_path() : std::filesystem::absolute(options.ticket).string();
    ticket_->says = says;
    ticket_->came = [this](const LinkPeer& peer, Descriptor socket) { came(peer, std::move(socket)); };
    ticket_->server = std::make_unique<LinkServer>(
        loop_, interface_of_this_host(/*is_alone=*/false).address, 0,
        LinkServer::Listener{
            .came = [ticket = ticket_.get()](const LinkPeer& peer,
                                             Descriptor socket) { ticket->came(peer, std::move(socket)); },
            .silent = [](const LinkPeer&, std::chrono::milliseconds) {},  // RemoteHost says so
            .lost = [](const LinkPeer&, const std::string&) {},  // as well, when its relay is gone
            .refused = says});
    try {
      write_ticket(ticket_->path, ticket_->server->admit("ranks"));
    } catch (const Error& error) {
      throw StartError(std::string("the session could not start: ") + error.what());
    }
    if (!options.launch.empty()) start_launcher(options);
  }

  ~Gathering() {
    ticket_->came = [ticket = ticket_.get()](const LinkPeer& peer, Descriptor socket) {
      ticket->turn_away(peer, std::move(socket), numbers_of(peer));
    };
  }

  RankPlaces places(const bool& interrupted) {
    if (!ticket_->launcher)
      says_(
          fmt::format("waiting for the ranks: start `{} relay --ticket {}` once for each, by mpirun, srun or torchrun "
                      "--no-python; Ctrl-C ends the wait",
                      program_, ticket_->path));
    loop_.run_until([&] { return is_complete() || !problem_.empty() || interrupted; },
                    EventLoop::Clock::now() + std::chrono::milliseconds(std::llround(1000 * limit_s_)));
    if (ticket_->launcher) loop_.forget(ticket_->launcher->pidfd());
    if (!problem_.empty()) throw StartError("the session could not start: " + problem_ + missing_text());
    if (interrupted) throw StartError("the session could not start: interrupted" + missing_text());
    if (!is_complete())
      throw StartError(
          fmt::format("the session could not start: not all ranks have come in {:g} s{}; --start-timeout S "
                      "waits longer",
                      limit_s_, missing_text()));
    std::vector<const RemoteHost*> machines;
    for (const auto& [rank, place] : places_) machines.push_back(&place->machine());
    if (const std::string text = differing_processors(machines); !text.empty()) says_(text);
    RankPlaces places;
    for (auto& [rank, place] : places_) places.push_back(std::move(place));
    return places;
  }

 private:
  void start_launcher(const SessionOptions& options) {
    Launch launch;
    if (options.launch == kRay) {
      launch.program = options.python && !options.python->empty() ? *options.python : "python3";
      launch.arguments = {"-c", kRayLauncher, std::to_string(size_)};
    } else {
      launch.program = "sh";
      launch.arguments = {"-c", "exec " + options.launch + " \"$@\"", "sh"};
    }
    launch.arguments.insert(launch.arguments.end(), {options.remote_program, "relay", "--ticket", ticket_->path});
    ticket_->launcher = std::make_unique<Child>(launch);
    loop_.watch(ticket_->launcher->pidfd(), [this, command = options.launch] {
      const auto end = ticket_->launcher->ended();
      if (!end) return;
      loop_.forget(ticket_->launcher->pidfd());
      problem_ = fmt::format("{}: {}", command, end->str());
    });
  }

  void came(const LinkPeer& peer, Descriptor socket) {
    Came numbers = numbers_of(peer);
    if (size_ == 0) size_ = numbers.world_size;
    if (numbers.rank < 0)  // its launcher has no numbers
      for (numbers.rank = 0; has_come(numbers.rank);) ++numbers.rank;
    if (size_ == 0)
      problem_ = "its launcher does not say how many ranks there are: say it with -n";
    else if (numbers.world_size != 0 && numbers.world_size != size_)
      problem_ = fmt::format("-n {}: the launcher starts {} processes", size_, numbers.world_size);
    if (!problem_.empty()) return ticket_->server->refuse(peer, std::move(socket), problem_);
    ticket_->size = size_;
    if (numbers.rank >= size_ || has_come(numbers.rank)) return ticket_->turn_away(peer, std::move(socket), numbers);
    ticket_->hosts[numbers.rank] = numbers.host;
    places_[numbers.rank] = std::make_unique<RemoteRanks>(loop_, numbers.host, std::move(socket), hub_,
                                                          numbers.local_rank, numbers.local_size, ticket_);
    if (!report_.is_set() && !is_complete()) report_.set_after(kSayEvery, [this] { report(); });
  }

  /// False for a rank whose relay has ended since: another one may come in its place.
  bool has_come(int rank) const {
    const auto place = places_.find(rank);
    return place != places_.end() && place->second->machine().state() != RemoteHost::State::lost;
  }

  void report() {
    if (!is_complete()) says_("waiting for the ranks" + missing_text());
  }

  bool is_complete() const {
    return size_ > 0 && static_cast<int>(places_.size()) == size_ && std::ranges::all_of(places_, [](const auto& each) {
             return each.second->machine().state() == RemoteHost::State::heard;
           });
  }

  /// "; ranks 0-2 have come, and rank 3 is missing".
  std::string missing_text() const {
    if (size_ == 0) return "; none has come";
    RankSet here;
    for (const auto& [rank, place] : places_)
      if (has_come(rank)) here.insert(rank);
    const RankSet missing = RankSet::all(size_) - here;
    if (missing.empty()) return "";
    return fmt::format("{}; {} {} missing",
                       here.empty() ? "" : fmt::format("; {} {} come", here.words(), here.size() == 1 ? "has" : "have"),
                       missing.words(), missing.size() == 1 ? "is" : "are");
  }

  EventLoop& loop_;
  int size_;  // 0: not known yet
  const std::string program_, hub_;
  const double limit_s_;
  const std::function<void(const std::string&)>& says_;
  const std::shared_ptr<Ticket> ticket_ = std::make_shared<Ticket>();
  std::map<int, std::unique_ptr<RemoteRanks>> places_;  // by rank
  std::string problem_;
  Deadline report_;
};

}  // namespace

RankPlaces places_by_ticket(EventLoop& loop, const SessionOptions& options, const std::string& hub,
                            const bool& interrupted, const std::function<void(const std::string&)>& says) {
  return Gathering(loop, options, hub, says).places(interrupted);
}

}  // namespace lockstep::shell
