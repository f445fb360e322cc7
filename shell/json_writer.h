// --json: a session's events as JSON lines, each with the time since the start, flushed one by one. Format: docs/events.md.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>

#include "shell/event.h"

namespace lockstep::shell {

class JsonWriter : public EventSink {
 public:
  /// `path` is a file that is written anew, or `-` for the standard output. Throws UsageError.
  explicit JsonWriter(const std::string& path);
  ~JsonWriter() override;
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  /// Throws UsageError when nothing more can be written (no space, the reader of a pipe is gone).
  void take(const Event& event) override;

 private:
  std::FILE* file_;
  std::string name_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Hands each event to several sinks, in order. Does not own them.
class EventFork : public EventSink {
 public:
  void add(EventSink& sink) { sinks_.push_back(&sink); }
  void take(const Event& event) override {
    for (auto* sink : sinks_) sink->take(event);
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace lockstep::shell
