// What a link (shell/link) costs the session: processor time of a handshake, of a round of 200 bytes to all peers and back,
// and of 2 MB to each, over the loopback interface with CURVE.
//
//   lockstep-bench-link [PEERS]        // 64; the peers are threads of a second process
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/link/link_client.h"
#include "shell/link/link_server.h"

namespace {

using namespace lockstep;
using namespace lockstep::shell;
using Clock = std::chrono::steady_clock;

constexpr size_t kShort = 200, kLong = 2 << 20;
constexpr int kRounds = 20, kLongRounds = 4;

double processor_ms() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  return 1e3 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-3 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

double resident_mb() {
  long all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Answers each message of a round with one byte, until the session ends.
void be_peer(const LinkTicket& ticket) {
  LinkClient link(ticket, nullptr, [](const std::string&) {});
  const Descriptor session = link.take_descriptor();
  std::string bytes(kLong, '\0');
  for (int round = 0; round < kRounds + kLongRounds; ++round) {
    const size_t size = round < kRounds ? kShort : kLong;
    if (read_all(session.get(), bytes.data(), size) != static_cast<ssize_t>(size)) return;
    send_all(session.get(), "!");
  }
}

int be_peers(int count, int ticket_pipe) {
  const auto ticket = nlohmann::json::parse(read_to_end(ticket_pipe)).get<LinkTicket>();
  std::vector<std::thread> peers;
  for (int i = 0; i < count; ++i) peers.emplace_back(be_peer, ticket);
  for (std::thread& each : peers) each.join();
  return 0;
}

/// Prints what the session has spent since the last time.
class Meter {
 public:
  explicit Meter(int peers) : peers_(peers) {}
  void report(const char* what, int rounds) {
    fmt::print("{}, {} peers: {:.1f} ms of the session's processor time, {:.1f} ms elapsed, {:.0f} MB resident\n", what,
               peers_, (processor_ms() - before_) / rounds,
               std::chrono::duration<double, std::milli>(Clock::now() - begin_).count() / rounds, resident_mb());
    before_ = processor_ms();
    begin_ = Clock::now();
  }

 private:
  const int peers_;
  double before_ = processor_ms();
  Clock::time_point begin_ = Clock::now();
};

/// Sends the bytes to all, by as much as each takes at a time, and waits for the answer of each.
void send_round(const std::vector<Descriptor>& ends, const std::string& bytes) {
  std::vector<pollfd> polled;
  for (const Descriptor& each : ends) polled.push_back({each.get(), POLLOUT, 0});
  std::vector<size_t> sent(ends.size());
  for (size_t open = ends.size(); open > 0;) {
    poll_until(polled);
    for (size_t i = 0; i < polled.size(); ++i) {
      if ((polled[i].revents & POLLOUT) != 0) {
        const ssize_t count = ::send(polled[i].fd, bytes.data() + sent[i], bytes.size() - sent[i], MSG_NOSIGNAL);
        if (count > 0) sent[i] += static_cast<size_t>(count);
        if (sent[i] == bytes.size()) polled[i].events = POLLIN;
      } else if (polled[i].revents != 0) {
        std::string answer;
        if (read_some(polled[i].fd, answer) != Reading::bytes) throw std::runtime_error("a peer has ended");
        polled[i].fd = -1;
        --open;
      }
    }
  }
}

void be_session(int count, int ticket_pipe) {
  EventLoop loop;
  std::vector<Descriptor> ends;
  LinkServer server(loop, "127.0.0.1", 0,
                    {.came = [&](const LinkPeer&, Descriptor end) { ends.push_back(std::move(end)); },
                     .silent = [](const LinkPeer&, std::chrono::milliseconds) {},
                     .lost = [](const LinkPeer&, const std::string& why) { fmt::print("lost: {}\n", why); },
                     .refused = [](const std::string& what) { fmt::print("{}\n", what); }});
  Meter meter(count);
  write_all(ticket_pipe, nlohmann::json(server.admit("peers")).dump());
  ::close(ticket_pipe);
  loop.run_until([&] { return ends.size() == static_cast<size_t>(count); });
  meter.report("handshake", 1);
  for (const Descriptor& each : ends) set_nonblocking(each.get());
  for (int i = 0; i < kRounds; ++i) send_round(ends, std::string(kShort, 'x'));
  meter.report("200 bytes and back", kRounds);
  const std::string bytes(kLong, 'x');
  for (int i = 0; i < kLongRounds; ++i) send_round(ends, bytes);
  meter.report("2 MB to each", kLongRounds);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 64;
  Pipe ticket = make_pipe();
  const pid_t peers = ::fork();  // before there are threads
  if (peers == 0) {
    ticket.write.reset();
    ::_exit(be_peers(count, ticket.read.get()));
  }
  be_session(count, ticket.write.release());
  ::waitpid(peers, nullptr, 0);
  return 0;
}
