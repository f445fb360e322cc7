// Makes the findings of verify besides those about differences. Pure.
#pragma once
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"
#include "inspectors/subject/subject.h"
#include "inspectors/verify/facts.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// Completes the findings about `subject`: adds an `ok` if there are none, what was not checked, and items that can't
/// be compared. `report` has its numbers.
void complete_findings(const About& about, const Subject& subject, const VerifyOptions& options, const Report& report,
                       std::vector<Finding>& findings);

/// Makes notes about ranks whose dropout draws the same numbers, and that have read the same batch.
std::vector<Finding> duplicate_findings(const About& about, const std::vector<VerifyFacts>& facts);

/// Makes a note about `ranks`, which are out of data (join) while the others continue.
Finding out_of_data_finding(const About& about, const RankSet& ranks);

}  // namespace lockstep::inspect
