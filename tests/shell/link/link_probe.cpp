// A session without cells, for tests on several hosts: listens on an address, takes the relays that come with its ticket,
// and prints what they say. Ends with its standard input, of which each line has the relays asked for the logs of all ranks.
//
//   link_probe ADDRESS TICKET
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "protocol/error.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/remote_host.h"
#include "shell/link/link_server.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;

void print_line(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}

class Probe {
 public:
  Probe(const std::string& address, const std::string& ticket)
      : server_(loop_, address, 0,
                {.came = [this](const LinkPeer& peer, Descriptor end) { came(peer, std::move(end)); },
                 .silent =
                     [](const LinkPeer& peer, std::chrono::milliseconds silence) {
                       print_line(fmt::format("link of {} {}", peer.ticket, silence > 0ms ? "is silent" : "answers"));
                     },
                 .lost =
                     [](const LinkPeer& peer, const std::string& why) {
                       print_line(fmt::format("link of {} is lost: {}", peer.ticket, why));
                     },
                 .refused = print_line}) {
    write_ticket(ticket, server_.admit("node1"));
    print_line("listening");
  }

  void run() {
    bool is_over = false;
    loop_.watch(STDIN_FILENO, [&] {
      std::string text;
      is_over = read_some(STDIN_FILENO, text) != Reading::bytes;
      for (const char each : text)
        if (each == '\n') ask();
    });
    loop_.run_until([&] { return is_over; });
  }

 private:
  void came(const LinkPeer& peer, Descriptor end) {
    const std::string name = peer.about.value("host", "");
    print_line(fmt::format("{} came from {}", name, peer.address));
    host_ = RemoteHost::start(
        loop_, name, std::move(end), "",
        {.seen =
             [this](const JobMember& rank) {
               if (ranks_.emplace(rank.facts.rank, rank).second)
                 print_line(fmt::format("rank {} is there", rank.facts.rank));
               else
                 print_line(fmt::format("rank {} came twice", rank.facts.rank));
             },
         .ended =
             [this](const JobMember& rank, const SeenEnd&, const inspect::Remains&) {
               ranks_.erase(rank.facts.rank);
               print_line(fmt::format("rank {} has ended", rank.facts.rank));
             },
         .changed =
             [](const RemoteHost& host) {
               print_line(fmt::format("{} {}", host.name(), host.answers() ? "answers" : host.absence()));
             }});
  }

  void ask() {
    std::vector<JobMember> all;
    for (const auto& [number, rank] : ranks_) all.push_back(rank);
    const int64_t question = host_->send(all, {{"request", kLogRequest}}, 10s);
    int count = 0;
    for (const auto& [number, answer] : host_->receive(question, EventLoop::Clock::now() + 60s))
      count += answer.error.empty();
    print_line(fmt::format("{} of {} ranks answer", count, all.size()));
  }

  EventLoop loop_;
  std::map<int, JobMember> ranks_;
  LinkServer server_;
  std::shared_ptr<RemoteHost> host_;
};

}  // namespace
}  // namespace lockstep::shell

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::signal(SIGPIPE, SIG_IGN);
  try {
    lockstep::shell::Probe(argv[1], argv[2]).run();
  } catch (const lockstep::Error& error) {
    lockstep::shell::print_line(error.what());
    return 3;
  }
  return 0;
}
