// Says how verdicts name a collective and its line.
#pragma once
#include <string>
#include <vector>

#include "inspectors/evidence/evidence.h"
#include "inspectors/findings/text.h"
#include "protocol/finding.h"

namespace lockstep::inspect::judging {

/// Returns "train.py:88 in step"; empty without frames.
std::string place(const std::vector<EvidenceFrame>& frames);

/// " float32 [8, 16]"; of several tensors the first. Empty if the shapes are not known.
std::string input_words(const EvidenceCall& call);

/// Returns "all_reduce #17 of default_pg".
std::string call_words(const EvidenceCall& call);

/// Returns "default_pg", or "group 3" where nothing describes it.
std::string group_words(const EvidenceCall& call);

FindingOp op_of(const EvidenceCall& call);

}  // namespace lockstep::inspect::judging
