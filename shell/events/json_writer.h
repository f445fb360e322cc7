// Writes --json: a session's events as JSON lines, each with the time since the start, one by one. docs/events.md has
// the format.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/events/event.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {

class JsonWriter : public EventSink {
 public:
  /// `path` is a file that is written anew, or `-` for the standard output. Throws UsageError.
  explicit JsonWriter(const std::string& path);

  /// Never throws: events come from callbacks and destructors. output() knows what could not be written.
  void take(const Event& event) override;
  TextOutput& output() { return *output_; }

 private:
  Descriptor file_;
  std::unique_ptr<TextOutput> output_;
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
