#include "compiler/process/process.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "protocol/error.h"

namespace lockstep::compiler {

pid_t start_copy(pid_t supervisor) {
  // A copy that a copy starts becomes the supervisor's child, too. With one thread, fork()'s handlers are not needed.
  const unsigned long flags = SIGCHLD | (::getpid() == supervisor ? 0 : CLONE_PARENT);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr));
  if (pid < 0) throw StartError(std::string("the compiler can't start another process: ") + std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != supervisor) ::_exit(1);
  }
  return pid;
}

void send_descriptor(int channel, int fd, pid_t pid) {
  iovec bytes{&pid, sizeof pid};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (::sendmsg(channel, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof pid))
    throw ChannelError("the other end of a channel is gone");
}

std::pair<Descriptor, pid_t> receive_descriptor(int channel) {
  pid_t pid = 0;
  iovec bytes{&pid, sizeof pid};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = uninterrupted([&] { return ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL); });
  if (n != static_cast<ssize_t>(sizeof pid)) throw ChannelError("the other end of a channel is gone");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      return {Descriptor(fd), pid};
    }
  throw ChannelError("a descriptor was expected on a channel, and none came");
}

}  // namespace lockstep::compiler
