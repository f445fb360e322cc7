#include "shell/jobs/relay_outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "protocol/pipe_channel.h"
#include "shell/jobs/relay_messages.h"

namespace lockstep::shell {

void RelayOutbox::open(Descriptor to) {
  to_ = std::move(to);
  set_nonblocking(to_.get());
}

void RelayOutbox::close() {
  if (!to_) return;
  if (std::exchange(is_watched_, false)) loop_.forget_writable(to_.get());
  ::shutdown(to_.get(), SHUT_WR);  // of a socket; what is read may come by the same one
  to_.reset();
  letters_.clear();
  written_ = 0;
}

void RelayOutbox::push(std::string bytes, bool is_urgent) {
  if (!to_) return;
  auto place = letters_.end();
  if (is_urgent)
    place = std::find_if(letters_.begin() + (written_ > 0 ? 1 : 0), letters_.end(),
                         [](const Letter& each) { return each.file != nullptr; });
  letters_.insert(place, {.bytes = std::move(bytes), .file = nullptr});
  flush();
}

void RelayOutbox::push_file(const std::string& name, const std::shared_ptr<const std::string>& bytes) {
  if (!to_) return;
  size_t from = 0;
  do {
    const size_t size = std::min(kPiece, bytes->size() - from);
    const PutFile piece{.name = name, .is_last = from + size == bytes->size()};
    letters_.push_back({.bytes = protocol::wire_prefix(protocol::encode_variant(ToRelay(piece)), std::array{size}),
                        .file = bytes,
                        .from = from,
                        .size = size});
    from += size;
  } while (from < bytes->size());
  flush();
}

void RelayOutbox::taken() {
  on_their_way_ = std::max(0, on_their_way_ - 1);
  flush();
}

int RelayOutbox::waiting() const {
  if (!to_ || letters_.empty()) return -1;
  const bool has_to_wait = letters_.front().file && written_ == 0 && on_their_way_ >= kPieces;
  return has_to_wait ? -1 : to_.get();
}

void RelayOutbox::write() {
  while (waiting() >= 0) {
    Letter& first = letters_.front();
    const std::string_view head = std::string_view(first.bytes).substr(std::min(written_, first.bytes.size()));
    const size_t of_file = written_ + head.size() - first.bytes.size();
    const std::string_view body =
        first.file ? std::string_view(*first.file).substr(first.from + of_file, first.size - of_file) : "";
    if (written_ == 0 && first.file) ++on_their_way_;
    const std::array parts = {iovec{const_cast<char*>(head.data()), head.size()},
                              iovec{const_cast<char*>(body.data()), body.size()}};
    const ssize_t count = uninterrupted([&] { return ::writev(to_.get(), parts.data(), parts.size()); });
    if (count < 0 && errno == EAGAIN) {
      if (written_ == 0 && first.file) --on_their_way_;
      break;
    }
    if (count < 0) {  // it has ended, which is read soon
      letters_.clear();
      written_ = 0;
      break;
    }
    written_ += static_cast<size_t>(count);
    if (written_ < first.length()) continue;
    letters_.pop_front();
    written_ = 0;
  }
}

/// Writes, and watches for what it does not take yet.
void RelayOutbox::flush() {
  if (!is_watched_) write();
  const bool waits = waiting() >= 0;
  if (waits == is_watched_ || !to_) return;
  is_watched_ = waits;
  if (waits)
    loop_.watch_writable(to_.get(), [this] {
      write();
      flush();
    });
  else
    loop_.forget_writable(to_.get());
}

}  // namespace lockstep::shell
