// The services that all parts of the cell runner use: the loop, the processes, and the way to the front end.
#pragma once
#include <functional>
#include <string>

#include "shell/events/event.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/object_source.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

struct CellServices {
  EventLoop& loop;
  ObjectSource& compiler;
  RankGroup& workers;
  SessionDirectory& directory;
  const SessionOptions& options;
  std::function<void(Event event)> emit;
  /// Emits a MessageEvent under the cell that is prepared or served.
  std::function<void(const std::string& text)> message;

  /// Whether a rank can be started again with what it has run: it is here, and the session has a compiler of its own.
  bool keeps_past_cells() const { return !options.objects && workers.can_restart_any(); }
};

}  // namespace lockstep::shell
