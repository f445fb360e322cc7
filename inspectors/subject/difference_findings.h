// Items that are not the same on all ranks, as findings: one for each verdict, kind and set of ranks. Pure: no
// communication.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// `items` of `subject`, which is what the ranks have in common. `buffers_written`: a forward of the wrapper has run on
/// some rank since it made the buffers equal.
std::vector<Finding> difference_findings(const About& about, const Subject& subject,
                                         const std::vector<ItemDifference>& items, bool buffers_written = false);

}  // namespace lockstep::inspect
