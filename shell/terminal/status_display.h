// Shows what goes on on a terminal of its own: the standard error, while the output of the session goes into a file.
#pragma once
#include <utility>

#include "shell/terminal/renderer.h"

namespace lockstep::shell {

class StatusDisplay : public EventSink {
 public:
  StatusDisplay(const Screen& screen, Renderer::Write write) : renderer_(screen, std::move(write)) {
    renderer_.set_brief(true);
  }
  void take(const Event& event) override {
    if (const auto* session = std::get_if<SessionEvent>(&event)) renderer_.set_ranks(session->ranks);
    if (std::holds_alternative<ProgressEvent>(event) || std::holds_alternative<ActivityEvent>(event))
      renderer_.take(event);
  }

 private:
  Renderer renderer_;
};

}  // namespace lockstep::shell
