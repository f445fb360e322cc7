// What the traces of all ranks amount to. Pure: facts in, findings out.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/nan/facts.h"

namespace lockstep::inspect {

/// One finding for all ranks that have the same; an `ok` where no rank has one. `facts`: by rank index.
std::vector<Finding> nan_findings(const About& about, const std::vector<NanFacts>& facts);

}  // namespace lockstep::inspect
