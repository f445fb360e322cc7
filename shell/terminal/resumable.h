// Finds the detachable session to which a terminal or a notebook is to come back, or explains why there is none.
#pragma once
#include <string>

#include "shell/detached/session_socket.h"

namespace lockstep::shell {

/// Returns the session that `id`, the beginning of an id, or "last" means (find_detachable()). Throws UsageError where it has
/// ended, is not detachable, is not there, or has a keeper of another version.
DetachableSession find_resumable(const std::string& id);

}  // namespace lockstep::shell
