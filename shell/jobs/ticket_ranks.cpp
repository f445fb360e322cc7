#include "shell/jobs/ticket_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "shell/hosts/network.h"
#include "shell/jobs/ray_launcher.h"
#include "shell/jobs/remote_ranks.h"
#include "shell/link/link_server.h"
#include "shell/processes/deadline.h"
#include "shell/processes/launcher.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

using std::chrono::seconds;

constexpr seconds kComeLimit{600};
constexpr seconds kSayEvery{2};

/// Homes are what the machines of a cluster share.
std::string shared_path() {
  const char* const home = std::getenv("HOME");
  if (!home || *home != '/')
    throw StartError("HOME names no folder for the ticket: give one that all hosts see (--ticket)");
  return fmt::format("{}/.lockstep-ticket-{}", home, random_key().substr(0, 16));
}

/// What all places of the session share: it lives as long as one of them.
struct Ticket {
  std::string path;
  std::function<void(const LinkPeer&, Descriptor)> came;  // none: nobody is waited for
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<Child> launcher;
  ~Ticket() {
    server.reset();  // with which the relays end, and the launcher after them
    if (launcher) launcher->ended_within(seconds(5));
    ::unlink(path.c_str());
  }
};

/// The numbers that a relay has by its launcher.
struct Came {
  int rank = -1, world_size = 0, local_rank = 0, local_size = 1;
  std::string host;
};

Came numbers_of(const nlohmann::json& about) {
  Came came;
  try {
    came.rank = about.value("rank", -1);
    came.world_size = about.value("world_size", 0);
    came.local_rank = about.value("local_rank", 0);
    came.local_size = std::max(about.value("local_size", 1), came.local_rank + 1);
    came.host = about.value("host", "");
  } catch (const nlohmann::json::exception&) {  // of another version: it is told so later
  }
  return came;
}

/// Waits for the ranks of one session.
class Gathering {
 public:
  Gathering(EventLoop& loop, const SessionOptions& options, const std::string& hub,
            const std::function<void(const std::string&)>& says)
      : loop_(loop),
        size_(options.num_processes.value_or(0)),
        program_(options.remote_program),
        hub_(hub),
        says_(says),
        report_(loop) {
    ticket_->path = options.ticket.empty() ? shared_path() : std::filesystem::absolute(options.ticket).string();
    ticket_->came = [this](const LinkPeer& peer, Descriptor socket) { came(peer, std::move(socket)); };
    ticket_->server = std::make_unique<LinkServer>(
        loop_, interface_of_this_host(/*is_alone=*/false).address, 0,
        LinkServer::Listener{.came =
                                 [ticket = ticket_.get()](const LinkPeer& peer, Descriptor socket) {
                                   if (ticket->came) ticket->came(peer, std::move(socket));
                                 },
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

  ~Gathering() { ticket_->came = nullptr; }

  RankPlaces places(const bool& interrupted) {
    if (!ticket_->launcher)
      says_(
          fmt::format("waiting for the ranks: start `{} relay --ticket {}` once for each, by mpirun, srun or torchrun "
                      "--no-python; Ctrl-C ends the wait",
                      program_, ticket_->path));
    loop_.run_until([&] { return is_complete() || !problem_.empty() || interrupted; },
                    EventLoop::Clock::now() + kComeLimit);
    if (ticket_->launcher) loop_.forget(ticket_->launcher->pidfd());
    if (!problem_.empty()) throw StartError("the session could not start: " + problem_ + missing_text());
    if (interrupted) throw StartError("the session could not start: interrupted" + missing_text());
    if (!is_complete())
      throw StartError(fmt::format("the session could not start: not all ranks have come in {} s{}", kComeLimit.count(),
                                   missing_text()));
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
    Came numbers = numbers_of(peer.about);
    if (size_ == 0) size_ = numbers.world_size;
    if (numbers.rank < 0)  // its launcher has no numbers
      for (numbers.rank = 0; has_come(numbers.rank);) ++numbers.rank;
    if (size_ == 0)
      problem_ = "its launcher does not say how many ranks there are: say it with -n";
    else if (numbers.world_size != 0 && numbers.world_size != size_)
      problem_ = fmt::format("-n {}: the launcher starts {} processes", size_, numbers.world_size);
    const std::string host = numbers.host.empty() ? peer.address : numbers.host;
    if (has_come(numbers.rank))
      says_(fmt::format("rank {} has come already; another relay of it, from {}, is turned away", numbers.rank, host));
    if (!problem_.empty() || numbers.rank >= size_ || has_come(numbers.rank)) return;  // it ends with its socket
    places_[numbers.rank] = std::make_unique<RemoteRanks>(loop_, host, std::move(socket), hub_, numbers.local_rank,
                                                          numbers.local_size, ticket_);
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
