// Makes the findings of verify besides those about differences. Pure.
#pragma once
#include <optional>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/subject.h"
#include "inspectors/verify/verify.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// Holds what ranks exchange about the compared object, of a fixed size. If it is equal, nothing else is exchanged.
struct VerifyFacts {
  Hash structure{};  // names, kinds, dtypes, shapes
  Hash content{};  // of all items, if they are compared by fingerprint
  bool buffers_written = false;  // a forward of the wrapper has run since it made the buffers equal
  bool out_of_data = false;  // in join()
  std::optional<Hash> dropout, inputs;  // as in Subject
};

LOCKSTEP_JSON(VerifyFacts, structure, content, buffers_written, out_of_data, dropout, inputs)

/// Completes the findings about `subject`: adds an `ok` if there are none, what was not checked, and items that can't
/// be compared. `report` has its numbers.
void complete_findings(const About& about, const Subject& subject, const VerifyOptions& options, const Report& report,
                       std::vector<Finding>& findings);

/// Makes notes about ranks whose dropout draws the same numbers, and that have read the same batch.
std::vector<Finding> duplicate_findings(const About& about, const std::vector<VerifyFacts>& facts);

/// Makes a note about `ranks`, which are out of data (join) while the others continue.
Finding out_of_data_finding(const About& about, const RankSet& ranks);

}  // namespace lockstep::inspect
