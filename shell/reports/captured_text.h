// Captures what people would see of some events, as plain text: for reports in files.
#pragma once
#include <string>
#include <utility>

#include "shell/events/event.h"
#include "shell/terminal/renderer.h"

namespace lockstep::shell {

class CapturedText : public EventSink {
 public:
  CapturedText()
      : renderer_({.terminal = false, .colour = false, .unicode = true, .width = 0},
                  [this](std::string_view text) { text_ += text; }) {}
  void take(const Event& event) override { renderer_.take(event); }
  /// Draws the errors that are held, and hands out what has been drawn since the last time.
  std::string finish() {
    renderer_.flush();
    return drawn();
  }
  std::string drawn() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  Renderer renderer_;
};

}  // namespace lockstep::shell
