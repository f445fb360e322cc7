// ZeroMQ's calls end with EINTR where a signal's handler runs, also those that do not wait: a Ctrl-C at the wrong
// moment would be an error. The functions below try again. Nothing has been sent or received when a call ends with
// EINTR (manual of zmq_msg_send and zmq_msg_recv).
#pragma once
#include <cerrno>
#include <zmq.hpp>

namespace lockstep::shell {

/// Calls `call`, which throws zmq::error_t, until a signal does not interrupt it. Returns what it returns.
template <class Call>
auto without_interrupts(const Call& call) {
  while (true) {
    try {
      return call();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

/// Receives as zmq::socket_t::recv().
inline zmq::recv_result_t receive(zmq::socket_ref socket, zmq::message_t& message,
                                  zmq::recv_flags flags = zmq::recv_flags::none) {
  return without_interrupts([&] { return socket.recv(message, flags); });
}

/// Sends as zmq::socket_t::send(); `message` is a zmq::message_t, empty after the call, or a zmq::const_buffer.
template <class Message>
zmq::send_result_t send(zmq::socket_ref socket, Message&& message, zmq::send_flags flags = zmq::send_flags::none) {
  return without_interrupts([&] { return socket.send(message, flags); });
}

}  // namespace lockstep::shell
