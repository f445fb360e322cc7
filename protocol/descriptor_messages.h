// Messages with descriptors, between processes of one machine.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep {

/// Both ends of a Unix socket that keeps messages apart, close-on-exec. Throws StartError.
std::pair<Descriptor, Descriptor> make_message_sockets();

/// Sends `bytes`, of which there is one at least, and with them copies of at most 16 descriptors through a Unix socket.
/// False where the socket has not taken all of it.
bool send_descriptors(int socket, std::string_view bytes, std::span<const int> descriptors);

/// A message as receive_descriptors() returns it. The descriptors are close-on-exec.
struct WithDescriptors {
  Reading found = Reading::failed;
  std::string bytes;
  std::vector<Descriptor> descriptors;
};
/// Takes at most `most` bytes; more of the same message is lost where messages are kept apart.
WithDescriptors receive_descriptors(int socket, size_t most);

/// Whether the process that has connected, or that listens, at the other end of a Unix socket is this user's.
bool is_of_this_user(int socket);

}  // namespace lockstep
