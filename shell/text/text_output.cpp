#include "shell/text/text_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

// A terminal has room for so much when it says that it has any.
constexpr size_t kTerminalPiece = 256;
// After an interrupt, a pipe's reader that takes nothing is given so long.
constexpr int kStalled_ms = 2000;
constexpr std::chrono::milliseconds kOfLate{500};

using Clock = std::chrono::steady_clock;

}  // namespace

void write_message(const std::string& text) {
  std::fputs(("lockstep: " + without_controls(text) + "\n").c_str(), stderr);
}

TextOutput::TextOutput(int fd, std::string name, std::function<void(size_t)> on_cut)
    : fd_(fd), name_(std::move(name)), on_cut_(std::move(on_cut)), wake_(make_event()) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || S_ISREG(status.st_mode)) return;
  is_display_ = ::isatty(fd) == 1;
  piece_ = is_display_ ? kTerminalPiece : PIPE_BUF;
  if (!is_display_) return;
  own_ =
      Descriptor(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!own_) return;  // another user's terminal: in small pieces it is
  fd_ = own_.get();
  piece_ = SIZE_MAX;
}

void TextOutput::write(std::string_view text, bool can_be_cut) {
  can_be_cut = can_be_cut && is_display_;
  while (!text.empty() && !closed_) {
    if (can_be_cut && interrupted_ && is_behind()) {
      cut(text.size());
      return;
    }
    if (piece_ > 0) {
      const Wait end = wait(can_be_cut);
      if (end == Wait::interrupted) continue;
      if (end == Wait::stalled) {
        if (!is_display_) lose("its reader takes nothing");
        if (can_be_cut) cut(text.size());
        return;
      }
    }
    const ssize_t n = uninterrupted(
        [&] { return ::write(fd_, text.data(), piece_ > 0 ? std::min(text.size(), piece_) : text.size()); });
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      last_wait_ = Clock::now();
    } else if (errno == EPIPE || (errno == EIO && is_display_)) {  // EIO: it has been hung up
      closed_ = true;
      lose("nobody reads it any more");
    } else {
      lose(std::strerror(errno));
      return;
    }
  }
}

/// Waits until the reader takes more.
TextOutput::Wait TextOutput::wait(bool can_be_cut) {
  const bool interrupted = interrupted_;
  pollfd polls[] = {{fd_, POLLOUT, 0}, {interrupted ? -1 : wake_.get(), POLLIN, 0}};
  if (::poll(polls, 1, 0) > 0) return Wait::writable;
  last_wait_ = Clock::now();
  if (interrupted && can_be_cut) return Wait::stalled;
  const int ready = ::poll(polls, 2, interrupted ? kStalled_ms : -1);
  last_wait_ = Clock::now();
  if (ready == 0) return Wait::stalled;
  return ready > 0 && polls[0].revents != 0 ? Wait::writable : Wait::interrupted;
}

/// Whether the reader has not kept up with what was written of late.
bool TextOutput::is_behind() const { return Clock::now() - last_wait_ < kOfLate; }

void TextOutput::lose(const std::string& why) {
  if (!std::exchange(lost_, true)) write_message(name_ + " can't be written: " + why);
}

void TextOutput::cut(size_t dropped) {
  // It drops, too, what the terminal has been given and not shown yet, which may be seconds' worth. It does not in the
  // background, where this would stop us.
  if (::tcgetpgrp(fd_) == ::getpgrp()) ::tcflush(fd_, TCOFLUSH);
  if (on_cut_) on_cut_(dropped);
}

void TextOutput::interrupt() noexcept {
  interrupted_ = true;
  set_event(wake_.get());
}

void TextOutput::resume() {
  take_event(wake_.get());
  interrupted_ = false;
}

}  // namespace lockstep::shell
