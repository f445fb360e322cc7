// verify's findings, from what was found different. Pure: no communication.
#pragma once
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"
#include "inspectors/subject/subject.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// Adds what belongs to the end of verify's findings about `subject`: an `ok` where there is none, what was not
/// checked, what could not be compared. `report`: for its numbers.
void complete_findings(const About& about, const Subject& subject, const VerifyOptions& options, const Report& report,
                       std::vector<Finding>& findings);

/// A note about `ranks`, which have no more data (join), while the others go on.
Finding out_of_data_finding(const About& about, const RankSet& ranks);

}  // namespace lockstep::inspect
