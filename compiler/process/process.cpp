#include "compiler/process/process.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "protocol/process_copy.h"

namespace lockstep::compiler {

pid_t start_copy(pid_t supervisor) {
  const pid_t pid = lockstep::start_copy(supervisor);
  if (pid < 0) throw StartError(std::string("the compiler can't start another process: ") + std::strerror(errno));
  return pid;
}

void send_descriptor(int channel, int fd, pid_t pid) {
  if (!send_descriptors(channel, {reinterpret_cast<const char*>(&pid), sizeof pid}, {&fd, 1}))
    throw ChannelError("the other end of a channel is gone");
}

std::pair<Descriptor, pid_t> receive_descriptor(int channel) {
  pid_t pid = 0;
  WithDescriptors received = receive_descriptors(channel, sizeof pid);
  if (received.bytes.size() != sizeof pid) throw ChannelError("the other end of a channel is gone");
  if (received.descriptors.size() != 1) throw ChannelError("a descriptor was expected on a channel, and none came");
  std::memcpy(&pid, received.bytes.data(), sizeof pid);
  return {std::move(received.descriptors[0]), pid};
}

}  // namespace lockstep::compiler
