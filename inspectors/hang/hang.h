// Who waits for whom? From the collective logs of all ranks, read while they are stuck or after they died, without
// their help. A session does that by itself and knows more (native stacks, lines, who has left a cell); this is for
// programs without one.
#pragma once
#include <string>
#include <vector>

#include "protocol/finding.h"

namespace lockstep::inspect {

/// `logs`: the files of all ranks (dist::InitOptions::log_path), of one machine, in any order. Local, from any process
/// of the same user. Waits of more than `seconds` count. What can't end is a fault (docs/inspectors.md has the
/// verdicts); a rank that comes late again and again is a note; `ok` says that no wait is proven to be in vain. A
/// process that is gone counts as dead. Throws dist::Error for a file that is no log.
std::vector<Finding> hang(const std::vector<std::string>& logs, double seconds = 0.1);

}  // namespace lockstep::inspect
