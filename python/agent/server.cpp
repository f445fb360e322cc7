#include "python/agent/server.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "protocol/blocked_signals.h"
#include "protocol/descriptor.h"
#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "protocol/unix_address.h"

namespace lockstep::agent {
namespace {

using nlohmann::json;

constexpr size_t kMostUnsent = size_t{64} << 20;
constexpr int kDeepest = 32;  // objects and arrays within each other: copies of JSON are made recursively
constexpr int kLookForDescriptors = 1000;  // ms

std::string line_of(const json& answer) {
  // Names of files and messages of users need not be UTF-8.
  return answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string error_line(const std::string& what) { return line_of({{"ok", false}, {"error", what}}); }

std::string run_handler(const Handler& handler, const json& request) {
  try {
    json answer = handler(request);
    if (!answer.is_object()) answer = {{"result", std::move(answer)}};
    answer["ok"] = true;
    return line_of(answer);
  } catch (const std::exception& error) {
    return error_line(error.what());
  }
}

/// A thread that handles no signals.
template <typename Function>
void start_thread(const char* name, Function function) {
  const BlockedSignals signals;
  std::thread([name, function] {
    ::pthread_setname_np(::pthread_self(), name);
    function();
  }).detach();
}

}  // namespace

json read_request(std::string_view line) {
  bool is_too_deep = false;
  const auto check = [&](int depth, json::parse_event_t, const json&) {
    is_too_deep = is_too_deep || depth > kDeepest;
    return !is_too_deep;
  };
  json request = json::parse(line, check, /*allow_exceptions=*/false);
  const bool is_good =
      !is_too_deep && request.is_object() && request.contains("request") && request["request"].is_string();
  return is_good ? request : json();
}

Server::Server(const std::string& socket) {
  for (auto& each : descriptors_) each = -1;
  const auto address = unix_address(socket);
  if (!address) throw Error("the path of the socket is too long: " + socket + "; set XDG_RUNTIME_DIR to a shorter one");
  listener_ = keep(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  wake_ = keep(make_event().release());
  if (listener_ < 0 || wake_ < 0 ||
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(socket.c_str(), 0600) != 0 || ::listen(listener_, static_cast<int>(kMostConnections)) != 0) {
    const std::string why = std::strerror(errno);
    drop(listener_);
    drop(wake_);
    throw Error(socket + " can't be listened at: " + why);
  }
  try {
    start_thread("lockstep", [this] { run(); });
  } catch (const std::exception& error) {
    drop(listener_);
    drop(wake_);
    ::unlink(socket.c_str());
    throw Error(std::string("no thread could be started: ") + error.what());
  }
}

int Server::keep(int fd) {
  if (fd >= 0)
    for (auto& each : descriptors_) {
      int free = -1;
      if (each.compare_exchange_strong(free, fd)) break;
    }
  return fd;
}

void Server::drop(int fd) {
  if (fd < 0) return;
  for (auto& each : descriptors_) {
    int same = fd;
    if (each.compare_exchange_strong(same, -1)) break;
  }
  ::close(fd);
}

void Server::close_in_child() {
  for (auto& each : descriptors_)
    if (const int fd = each.exchange(-1); fd >= 0) ::close(fd);
}

void Server::wake() { set_event(wake_); }

void Server::stop() {
  std::unique_lock lock(mutex_);
  stops_ = true;
  wake();
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !runs_; });
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !aside_runs_; });
}

void Server::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    // The program may have taken the descriptor that was spare. Nothing announces a free one.
    if (spare_ < 0) spare_ = keep(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const int limit = spare_ < 0 ? kLookForDescriptors : -1;
    std::vector<pollfd> polled = {{wake_, POLLIN, 0}, {spare_ < 0 ? -1 : listener_, POLLIN, 0}};
    std::vector<uint64_t> ids;
    for (const auto& [id, each] : connections_) {
      const bool reads = !each.waits && !each.ends && each.out.empty();
      polled.push_back({each.fd, static_cast<short>((reads ? POLLIN : 0) | (each.out.empty() ? 0 : POLLOUT)), 0});
      ids.push_back(id);
    }
    if (uninterrupted([&] { return ::poll(polled.data(), polled.size(), limit); }) < 0) break;
    if (polled[0].revents != 0) take_answers();
    for (size_t i = 0; i < ids.size(); ++i) {
      const short events = polled[i + 2].revents;
      const auto found = connections_.find(ids[i]);
      if (events == 0) continue;
      bool lives = (events & (POLLERR | POLLNVAL)) == 0;
      // A peer that has only stopped writing still gets its answers; POLLHUP says that it has gone.
      if (lives && (events & POLLIN) != 0)
        lives = receive(ids[i], found->second);
      else if (lives && (events & POLLHUP) != 0)
        lives = false;
      if (lives && !found->second.out.empty()) lives = send_out(found->second);
      if (lives && found->second.out.empty() && !found->second.waits && !found->second.ends)
        serve_lines(ids[i], found->second);
      if (lives && found->second.ends && found->second.out.empty()) lives = false;
      if (!lives) {
        drop(found->second.fd);
        connections_.erase(found);
      }
    }
    if (polled[1].revents != 0) accept_all();
  }
  for (auto& [id, each] : connections_) drop(each.fd);
  connections_.clear();
  drop(std::exchange(listener_, -1));
  drop(std::exchange(spare_, -1));
  const std::lock_guard lock(mutex_);
  runs_ = false;
  changed_.notify_all();
}

void Server::accept_all() {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      // Without a free descriptor the error is the same where no connection waits.
      if (spare_ < 0 || !refuse()) return;
      continue;
    }
    if (!is_of_this_user(fd) || connections_.size() >= kMostConnections)
      ::close(fd);
    else
      connections_[next_++].fd = keep(fd);
  }
}

/// Without descriptors poll would report the waiting connection again and again.
bool Server::refuse() {
  drop(std::exchange(spare_, -1));
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) ::close(fd);
  spare_ = keep(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return fd >= 0;
}

bool Server::receive(uint64_t id, Connection& connection) {
  while (true) {
    const Reading found = read_some(connection.fd, connection.in);
    if (found != Reading::bytes) return found == Reading::empty;
    serve_lines(id, connection);
    if (connection.waits || connection.ends || !connection.out.empty()) return true;
  }
}

void Server::serve_lines(uint64_t id, Connection& connection) {
  while (!connection.waits && !connection.ends) {
    const size_t end = connection.in.find('\n');
    if (std::min(end, connection.in.size()) > kLongestRequest) {
      connection.out += error_line("a request has at most " + std::to_string(kLongestRequest) + " bytes");
      connection.in.clear();
      connection.ends = true;
      return;
    }
    if (end == std::string::npos) return;
    const std::string line = connection.in.substr(0, end);
    connection.in.erase(0, end + 1);
    if (auto text = answer(id, line))
      connection.out += *text;
    else
      connection.waits = true;
    if (!connection.out.empty() && !send_out(connection)) connection.ends = true;
    if (connection.out.size() > kMostUnsent) connection.ends = true;
    if (!connection.out.empty()) return;  // the peer reads first
  }
}

std::optional<std::string> Server::answer(uint64_t id, const std::string& line) {
  const json request = read_request(line);
  if (request.is_null())
    return error_line("a request is a JSON object with \"request\", at most " + std::to_string(kDeepest) +
                      " levels deep");
  const std::string name = request["request"];
  const auto handler = find_handler(name);
  if (!handler) {
    std::string known;
    for (const std::string& each : handler_names()) known += (known.empty() ? "" : ", ") + each;
    return error_line("there is no request \"" + name.substr(0, 100) + "\"; there are " + known);
  }
  if (handler->second == Runs::here) return run_handler(handler->first, request);
  const std::lock_guard lock(mutex_);
  if (aside_)
    return line_of({{"ok", false}, {"busy", true}, {"error", "the rank is still answering \"" + aside_->name + "\""}});
  if (!aside_runs_) {
    try {
      start_thread("lockstep-aside", [this] { run_aside(); });
    } catch (const std::exception& error) {
      return error_line(std::string("no thread could be started: ") + error.what());
    }
    aside_runs_ = true;
  }
  aside_ = Aside{id, name, handler->first, request};
  aside_taken_ = false;
  changed_.notify_all();
  return std::nullopt;
}

void Server::run_aside() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || (aside_ && !aside_taken_); });
    if (stops_) break;
    aside_taken_ = true;
    {
      const Handler handler = aside_->handler;
      const json request = aside_->request;
      lock.unlock();
      std::string text = run_handler(handler, request);
      lock.lock();
      answers_.emplace_back(aside_->connection, std::move(text));
    }
    aside_.reset();
    wake();
  }
  aside_runs_ = false;
  changed_.notify_all();
}

void Server::take_answers() {
  take_event(wake_);
  std::deque<std::pair<uint64_t, std::string>> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (auto& [id, text] : answers) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;  // the peer has gone
    found->second.waits = false;
    found->second.out += text;
    if (!send_out(found->second)) found->second.ends = true;
  }
}

bool Server::send_out(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t count = uninterrupted(
        [&] { return ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL); });
    if (count < 0) return errno == EAGAIN;
    connection.out.erase(0, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace lockstep::agent
