// Makes the findings from the traces of all ranks. Pure: facts in, findings out.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/nan/facts.h"

namespace lockstep::inspect {

/// Equal findings of several ranks are one; an `ok` if no rank has any. `facts` are by rank index.
std::vector<Finding> nan_findings(const About& about, const std::vector<NanFacts>& facts);

}  // namespace lockstep::inspect
