#include "shell/jupyter/session_channels.h"

#include <sys/socket.h>

#include "protocol/error.h"

namespace lockstep::shell::jupyter {
namespace {

constexpr std::chrono::seconds kEndLimit{1};  // for the last reply, to a process that takes little or nothing

}  // namespace

SessionChannels::SessionChannels(Descriptor socket, std::string key)
    : Channels(std::move(key)), socket_(std::move(socket)) {
  set_nonblocking(socket_.get());
}

void SessionChannels::watch(EventLoop& loop, Taken taken) {
  loop_ = &loop;
  taken_ = std::move(taken);
  loop.watch(socket_.get(), [this] { take(); });
}

void SessionChannels::take() {
  for (Reading found = Reading::bytes; socket_ && found == Reading::bytes;) {
    std::string bytes;
    found = read_some(socket_.get(), bytes);
    if (found == Reading::end || found == Reading::failed)
      loop_->forget(socket_.get());  // the keeper says what has become of the other end
    arrived_.append(bytes);
    while (const auto message = next()) {
      const nlohmann::json& channel = message->header;
      taken_(static_cast<Channel>(channel.is_number_integer() ? channel.get<int>() : 0), message->frames);
    }
  }
}

std::optional<protocol::PipeMessage> SessionChannels::next() {
  try {
    return arrived_.next();
  } catch (const ChannelError&) {  // nobody of Lockstep is there
    close();
    return std::nullopt;
  }
}

void SessionChannels::send_frames(Channel channel, const std::vector<std::string>& frames) {
  if (!socket_) return;
  unsent_ += protocol::wire_bytes({.header = static_cast<int>(channel), .frames = frames});
  if (!waits_for_room_) write();
}

void SessionChannels::write() {
  ssize_t count = 0;
  while (sent_ < unsent_.size() && count >= 0) {
    count = uninterrupted(
        [&] { return ::send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL); });
    if (count > 0) sent_ += static_cast<size_t>(count);
  }
  if (count < 0 && errno != EAGAIN) sent_ = unsent_.size();  // nobody is there
  if (sent_ >= unsent_.size() / 2) unsent_.erase(0, std::exchange(sent_, 0));
  if (waits_for_room_ == !unsent_.empty()) return;
  waits_for_room_ = !unsent_.empty();
  if (waits_for_room_)
    loop_->watch_writable(socket_.get(), [this] { write(); });
  else
    loop_->forget_writable(socket_.get());
}

void SessionChannels::forget(EventLoop&) {
  pollfd polled{socket_.get(), POLLOUT, 0};
  const auto until = EventLoop::Clock::now() + kEndLimit;
  while (!unsent_.empty() && EventLoop::Clock::now() < until && poll_until({&polled, 1}, until) > 0) write();
  close();
}

void SessionChannels::close() {
  if (!socket_) return;
  if (loop_) loop_->forget(socket_.get());
  if (std::exchange(waits_for_room_, false)) loop_->forget_writable(socket_.get());
  socket_.reset();
  unsent_.clear();
}

}  // namespace lockstep::shell::jupyter
