#include "shell/detached/session_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "protocol/read_struct.h"
#include "protocol/runtime_folder.h"
#include "protocol/unix_address.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".terminal", kNew = "-new";  // until it is listened at
constexpr int kWaiting = 16;  // connections that have not been taken yet
constexpr std::chrono::milliseconds kAnswerLimit{1000};
constexpr std::chrono::minutes kMakingLimit{1};  // a socket that is half made for longer was left

/// Returns none, and errno, where nobody listens. A keeper that is busy makes it wait.
Descriptor connected(const std::string& path) {
  const auto address = unix_address(path);
  if (!address) return {};
  Descriptor fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const timeval limit = {kAnswerLimit.count() / 1000, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // connect() has this limit, too
  if (!fd ||
      uninterrupted([&] { return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address); }))
    return {};
  return fd;
}

std::string id_of(const fs::path& path) {
  const std::string name = path.filename();
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : "";
}

/// Returns those of files whose names are an id, the suffix and `more`.
std::vector<std::string> socket_paths(std::string_view more = "") {
  std::vector<std::string> paths;
  for (const std::string& folder : protocol::runtime_directories()) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      if (const std::string path = entry->path();
          path.ends_with(more) && !id_of(path.substr(0, path.size() - more.size())).empty())
        paths.push_back(path);
  }
  return paths;
}

/// Returns nothing where nobody listens.
std::optional<KeeperAnswer> state_at(const std::string& path) {
  KeeperAnswer silent{.problem = "its keeper does not answer", .id = id_of(path), .terminal = {}};
  const Descriptor socket = connected(path);
  if (!socket && (errno == ECONNREFUSED || errno == ENOENT)) return std::nullopt;
  if (!socket || !is_of_this_user(socket.get()) ||
      !send_json(
          socket.get(), Mail::hello,
          TerminalHello{
              .protocol = kProtocolVersion, .asks = Asks::state, .name = {}, .type = {}, .size = {}, .key = {}}) ||
      !is_ready(socket.get(), POLLIN, kAnswerLimit))
    return silent;
  const Received answer = receive_mail(socket.get());
  if (answer.found == Reading::end) return std::nullopt;  // it has just ended
  if (answer.found != Reading::bytes || answer.kind != Mail::answer) return silent;
  return protocol::read_struct<KeeperAnswer>(answer.body).value_or(silent);
}

}  // namespace

SessionSocket::SessionSocket(const std::string& id)
    : path(protocol::runtime_directory() + "/" + id + std::string(kSuffix)),
      listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const std::string made = path + std::string(kNew);
  const auto address = unix_address(made);
  if (!address)
    throw StartError("the path of the session's socket is too long (" + path +
                     "): set XDG_RUNTIME_DIR to a shorter one");
  if (!listener || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(made.c_str(), 0600) != 0 || ::listen(listener.get(), kWaiting) != 0 ||
      ::rename(made.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(made.c_str());
    throw StartError("the session can't be detachable: " + path + " can't be listened at: " + why);
  }
}

SessionSocket::~SessionSocket() { ::unlink(path.c_str()); }

Descriptor SessionSocket::accept() const {
  Descriptor connection(
      uninterrupted([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
  return connection && is_of_this_user(connection.get()) ? std::move(connection) : Descriptor();
}

std::vector<DetachableSession> detachable_sessions() {
  std::vector<DetachableSession> sessions;
  for (const std::string& path : socket_paths())
    if (auto state = state_at(path)) sessions.push_back({.path = path, .state = std::move(*state)});
  std::ranges::sort(sessions, {}, [](const DetachableSession& each) { return each.state.since; });
  return sessions;
}

std::optional<DetachableSession> find_detachable(const std::string& id) {
  const std::vector<DetachableSession> sessions = detachable_sessions();
  std::vector<std::string> ids;
  const DetachableSession* found = nullptr;
  size_t begun = 0;
  for (const DetachableSession& each : sessions) {
    ids.push_back(each.state.id);
    if (each.state.id == id) return each;
    const bool is_later = id == "last" && (!found || each.state.terminal.empty() || !found->state.terminal.empty());
    if (is_later || (id != "last" && each.state.id.starts_with(id))) found = &each, ++begun;
  }
  if (found && (id == "last" || begun == 1)) return *found;
  if (begun > 1) {
    std::erase_if(ids, [&](const std::string& each) { return !each.starts_with(id); });
    throw UsageError(fmt::format("{} begins the ids of {} sessions: {}", id, begun, fmt::join(ids, ", ")));
  }
  return {};
}

Descriptor connect_to_keeper(const std::string& path) {
  Descriptor socket = connected(path);
  if (!socket) throw UsageError("the session can't be reached at " + path + ": " + std::strerror(errno));
  if (!is_of_this_user(socket.get())) throw UsageError("the process at " + path + " belongs to another user");
  return socket;
}

std::vector<std::string> clean_session_sockets() {
  std::vector<std::string> removed;
  for (const std::string& path : socket_paths())
    if (!connected(path) && errno == ECONNREFUSED && ::unlink(path.c_str()) == 0) removed.push_back(id_of(path));
  const auto now = fs::file_time_type::clock::now();
  for (const std::string& path : socket_paths(kNew)) {
    std::error_code error;
    const auto made = fs::last_write_time(path, error);
    if (error || now - made < kMakingLimit || !fs::remove(path, error)) continue;
    removed.push_back(id_of(path.substr(0, path.size() - kNew.size())));
  }
  return removed;
}

std::string words_of_other_version(const std::string& id) {
  return fmt::format(
      "the session {} was started by another version of Lockstep, whose keeper this one ({}) can't talk to: use that "
      "one",
      id, kVersion);
}

std::string clock_text(int64_t seconds) {
  const std::time_t time = seconds, now = std::time(nullptr);
  std::tm parts = {}, today = {};
  ::localtime_r(&time, &parts);
  ::localtime_r(&now, &today);
  const bool is_today = parts.tm_yday == today.tm_yday && parts.tm_year == today.tm_year;
  char text[32];
  std::strftime(text, sizeof text, is_today ? "%H:%M" : "%Y-%m-%d %H:%M", &parts);
  return text;
}

std::string words_of(const KeeperAnswer& state) {
  if (!state.problem.empty()) return "no answer";
  const std::string watched = state.watchers > 0 ? fmt::format(", {} watching", state.watchers) : std::string();
  if (state.terminal.empty()) return "detached until " + clock_text(state.until) + watched;
  return "attached: " + state.terminal + watched;
}

}  // namespace lockstep::shell
