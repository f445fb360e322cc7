#include "worker/process/outbox.h"

#include <unistd.h>

#include <algorithm>

#include "protocol/descriptor.h"

namespace lockstep::worker {

void Outbox::put(Outgoing message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back({std::move(message), pipes_.written()});
  }
  set_event(event_fd_);
}

void Outbox::post(protocol::Progress progress) {
  {
    const std::lock_guard lock(mutex_);
    // Looks among the last messages, as far as all of them are progress: of loops in one another.
    for (auto each = messages_.rbegin(); each != messages_.rend(); ++each) {
      auto* message = std::get_if<protocol::WorkerMessage>(&each->message);
      auto* waiting = message ? std::get_if<protocol::Progress>(message) : nullptr;
      if (!waiting) break;
      if (waiting->cell != progress.cell || waiting->loop != progress.loop) continue;
      if (progress.state != LoopState::running) {  // the end comes after what was written before it
        messages_.erase(std::next(each).base());
        break;
      }
      *waiting = std::move(progress);
      return;
    }
  }
  put(protocol::WorkerMessage(std::move(progress)));
}

std::optional<Outgoing> Outbox::next() {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) return std::nullopt;
  const auto& mark = messages_.front().mark;
  for (const Stream stream : protocol::kStreams)
    if (pipes_.bytes_read(stream) < mark[protocol::index_of(stream)]) return std::nullopt;
  Outgoing message = std::move(messages_.front().message);
  messages_.pop_front();
  return message;
}

size_t Outbox::read(Stream stream, size_t limit, std::string& bytes) {
  const std::lock_guard lock(mutex_);
  if (!messages_.empty())
    limit = std::min<size_t>(limit, messages_.front().mark[protocol::index_of(stream)] - pipes_.bytes_read(stream));
  return limit == 0 ? 0 : pipes_.read(stream, limit, bytes);
}

bool Outbox::waiting_for_bytes() {
  const std::lock_guard lock(mutex_);
  return !messages_.empty();
}

}  // namespace lockstep::worker
