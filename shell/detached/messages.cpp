#include "shell/detached/messages.h"

#include <sys/socket.h>

namespace lockstep::shell {

Received receive_mail(int socket) {
  std::string bytes(kMostMail + 1, '\0');
  const ssize_t size = uninterrupted([&] { return ::recv(socket, bytes.data(), bytes.size(), 0); });
  if (size < 0) return {.found = errno == EAGAIN ? Reading::empty : Reading::failed, .body = {}};
  if (size == 0) return {.found = Reading::end, .body = {}};
  return {.found = Reading::bytes,
          .kind = static_cast<Mail>(bytes[0]),
          .body = bytes.substr(1, static_cast<size_t>(size) - 1)};
}

bool send_mail(int socket, Mail kind, std::string_view body) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += body.substr(0, kMostMail);
  return uninterrupted([&] { return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace lockstep::shell
