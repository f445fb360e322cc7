#include "shell/link/link_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "shell/processes/hub.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostKept = 1024;  // messages, however short
constexpr int kMostUntold = 256;

}  // namespace

LinkStream::LinkStream(EventLoop& loop, Descriptor local, const LinkLimits& limits,
                       std::function<bool(LinkMessage)> send)
    : loop_(loop), local_(std::move(local)), limits_(limits), send_(std::move(send)) {
  set_nonblocking(local_.get());
  watch_input();
}

LinkStream::~LinkStream() { give_up(); }

void LinkStream::give_up() {
  if (!local_) return;
  if (is_watched_) loop_.forget(local_.get());
  is_watched_ = is_connected_ = false;
  forget_output();
  local_.reset();
  kept_.clear();
  arrived_.clear();
}

void LinkStream::connect(uint64_t received) {
  is_connected_ = true;
  acknowledge(received);
  for (Piece& each : kept_)
    if (!send(each)) return;
}

void LinkStream::watch_input() {
  const bool has_room = next_ - acked_ < limits_.window && kept_.size() < kMostKept;
  const bool watches = local_ && !has_ended_ && has_room;
  if (watches == is_watched_) return;
  is_watched_ = watches;
  if (watches)
    loop_.watch(local_.get(), [this] { read(); });
  else if (local_)
    loop_.forget(local_.get());
}

void LinkStream::read() {
  const size_t room = std::min(limits_.piece, limits_.window - (next_ - acked_));
  std::string bytes;
  Reading found = Reading::bytes;
  while (found == Reading::bytes && bytes.size() < room) found = read_some(local_.get(), bytes, room - bytes.size());
  if (!bytes.empty()) add(LinkKind::data, std::move(bytes));
  const bool is_last = found == Reading::end || found == Reading::failed || (found == Reading::empty && ends_);
  if (is_last) {
    has_ended_ = true;
    add(LinkKind::end, "");
  }
  watch_input();
}

void LinkStream::end_input() {
  ends_ = true;
  if (is_watched_) read();
}

void LinkStream::add(LinkKind kind, std::string bytes) {
  const uint64_t size = kind == LinkKind::end ? 1 : bytes.size();
  kept_.push_back({.offset = next_, .size = size, .kind = kind, .bytes = shared_frame(std::move(bytes))});
  next_ += size;
  send(kept_.back());
}

bool LinkStream::send(Piece& piece) {
  if (!is_connected_) return false;
  LinkMessage message{.kind = piece.kind, .offset = piece.offset, .received = delivered_, .body = {}};
  message.body.copy(piece.bytes);
  told_ = delivered_;
  untold_messages_ = 0;
  is_connected_ = send_(std::move(message));
  return is_connected_;
}

void LinkStream::say(LinkKind kind) {
  if (!is_connected_) return;
  told_ = delivered_;
  untold_messages_ = 0;
  is_connected_ = send_({.kind = kind, .offset = 0, .received = delivered_, .body = {}});
}

void LinkStream::take(LinkMessage message) {
  if (!local_) return;
  if (message.received > next_) throw ChannelError("acknowledges what was never sent");
  acknowledge(message.received);
  switch (message.kind) {
    case LinkKind::data:
    case LinkKind::end:
      deliver(std::move(message));
      break;
    case LinkKind::ping:
      say(LinkKind::pong);
      break;
    case LinkKind::ack:
    case LinkKind::pong:
      break;
    case LinkKind::hello:
    case LinkKind::welcome:
    case LinkKind::refusal:
      throw ChannelError("sends what belongs to the begin of a connection");
  }
}

void LinkStream::acknowledge(uint64_t received) {
  acked_ = std::max(acked_, received);
  while (!kept_.empty() && kept_.front().offset + kept_.front().size <= acked_) kept_.pop_front();
  watch_input();
  if (ends_ && is_watched_) read();  // there was no room for all before
}

void LinkStream::deliver(LinkMessage message) {
  const bool is_end = message.kind == LinkKind::end;
  const uint64_t size = is_end ? 1 : message.body.size();
  if (message.offset > expected_) throw ChannelError("leaves out bytes");
  if (message.offset + size <= expected_) return;  // it had been sent before
  const uint64_t had = expected_ - message.offset;
  expected_ += size - had;
  if (expected_ - delivered_ > limits_.window + 1) throw ChannelError("sends more than it may");
  arrived_.push_back({.bytes = std::move(message.body), .written = static_cast<size_t>(had), .is_end = is_end});
  ++untold_messages_;
  if (!is_waiting_) write();
}

void LinkStream::write() {
  while (!arrived_.empty()) {
    Arrived& next = arrived_.front();
    const size_t rest = next.bytes.size() - next.written;
    if (next.is_end) {
      ::shutdown(local_.get(), SHUT_WR);
      end_is_delivered_ = true;
      ++delivered_;
    } else if (has_reader_) {
      const ssize_t count = uninterrupted([&] {
        return ::send(local_.get(), next.bytes.data<char>() + next.written, rest, MSG_NOSIGNAL | MSG_DONTWAIT);
      });
      if (count < 0 && errno == EAGAIN) break;
      if (count < 0) {
        has_reader_ = false;  // as with a pipe: what comes is dropped, and the writer learns of it by the end
        continue;
      }
      delivered_ += static_cast<uint64_t>(count);
      next.written += static_cast<size_t>(count);
      if (next.written < next.bytes.size()) continue;
    } else {
      delivered_ += rest;
    }
    arrived_.pop_front();
  }
  if (arrived_.empty()) {
    forget_output();
  } else if (!is_waiting_) {
    is_waiting_ = true;
    loop_.watch_writable(local_.get(), [this] { write(); });
  }
  if (end_is_delivered_ || delivered_ - told_ >= limits_.window / 4 || untold_messages_ >= kMostUntold)
    say(LinkKind::ack);
}

void LinkStream::forget_output() {
  if (is_waiting_) loop_.forget_writable(local_.get());
  is_waiting_ = false;
}

}  // namespace lockstep::shell
