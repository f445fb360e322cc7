// Makes the findings about items that differ between ranks: one for each verdict, kind and set of ranks. Pure.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// `subject` has the items that all ranks have, `items` those that differ. `buffers_written`: on some rank a forward of
/// the wrapper has run since it made the buffers equal.
std::vector<Finding> difference_findings(const About& about, const Subject& subject,
                                         const std::vector<ItemDifference>& items, bool buffers_written = false);

}  // namespace lockstep::inspect
