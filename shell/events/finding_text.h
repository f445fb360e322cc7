// Writes a finding as lines for people: what is wrong and on which ranks, then the tensors that it is about.
#pragma once
#include <string>

#include "protocol/finding.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

/// Returns lines with their ends. At most `most_tensors` tensors are listed; the rest is counted.
std::string finding_text(const Finding& finding, const Screen& screen, size_t most_tensors = 12);

}  // namespace lockstep::shell
