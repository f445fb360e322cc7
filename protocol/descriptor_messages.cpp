#include "protocol/descriptor_messages.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostDescriptors = 16;  // in a message

}  // namespace

std::pair<Descriptor, Descriptor> make_message_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw StartError(std::string("a pair of sockets could not be made: ") + std::strerror(errno) + " (ulimit -n)");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

bool send_descriptors(int socket, std::string_view bytes, std::span<const int> descriptors) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors.size() > kMostDescriptors) {
    errno = EINVAL;
    return false;
  }
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = uninterrupted([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL); });
  return sent == static_cast<ssize_t>(bytes.size());
}

WithDescriptors receive_descriptors(int socket, size_t most) {
  WithDescriptors received;
  received.bytes.resize(most);
  iovec data{received.bytes.data(), most};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = uninterrupted([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
  received.bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
  received.found = size > 0                                  ? Reading::bytes
                   : size == 0                               ? Reading::end
                   : errno == EAGAIN || errno == EWOULDBLOCK ? Reading::empty
                                                             : Reading::failed;
  if (size <= 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  return received;
}

bool is_of_this_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace lockstep
