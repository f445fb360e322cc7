#include "shell/link/link_ticket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "protocol/user_folders.h"
#include "shell/link/link_messages.h"

namespace lockstep::shell {
namespace {

constexpr off_t kLargestTicket = 1 << 16;

std::string ticket_problem(const LinkTicket& ticket) {
  if (ticket.session.empty()) return "names no session";
  if (ticket.addresses.empty() || std::ranges::any_of(ticket.addresses, &std::string::empty)) return "has no address";
  if (ticket.port < 1 || ticket.port > 65535) return "has no port";
  if (!is_link_key(ticket.server_key) || !is_link_key(ticket.key)) return "lacks a key";
  return "";
}

/// Returns what is wrong with the open file, by its owner and mode; empty: nothing.
std::string file_problem(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return std::strerror(errno);
  if (!S_ISREG(status.st_mode)) return "it is no file";
  if (status.st_uid != ::geteuid()) return "it belongs to another user";
  // Who has read it has the key, so that closing it now would not help.
  if ((status.st_mode & 077) != 0) return "other users can read it: make a new ticket in a folder of yours";
  if (status.st_size > kLargestTicket) return "it is too large";
  return "";
}

}  // namespace

void write_ticket(const std::string& path, const LinkTicket& ticket) {
  protocol::write_at_once(path, nlohmann::json(ticket).dump(2) + "\n");
}

LinkTicket read_ticket(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("the ticket {} can't be used: {}", path, why));
  };
  const bool is_input = path == "-";
  const Descriptor file(is_input ? ::dup(STDIN_FILENO)
                                 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) refuse(errno == ELOOP ? "it is a link" : std::strerror(errno));
  if (!is_input) {
    if (const std::string problem = file_problem(file); !problem.empty()) refuse(problem);
    if (const std::string problem = protocol::writable_by_others(std::filesystem::absolute(path)); !problem.empty())
      refuse(problem);
  }
  std::string text(kLargestTicket, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read_all(file.get(), text.data(), text.size()))));
  const auto json = protocol::read_json(text);
  LinkTicket ticket;
  try {
    ticket = json.get<LinkTicket>();
  } catch (const nlohmann::json::exception&) {  // whose text may have a part of a key
    refuse("it is no ticket of Lockstep");
  }
  if (const std::string problem = ticket_problem(ticket); !problem.empty()) refuse("it " + problem);
  return ticket;
}

}  // namespace lockstep::shell
