// Compares whether ranks have the same items: names, kinds, dtypes, shapes, order, requires_grad, device types. Strides
// are not compared, since they do not change values.
#pragma once
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/subject.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Returns equal hashes if the structures are equal.
Hash structure_hash(const Subject& subject);

struct StructureDifference {
  std::vector<Finding> findings;  // without object and step
  std::vector<std::string> comparable;  // names that every rank has with the same kind, dtype and shape
};

/// Collective over `exchange`'s ranks, whose structures are not all equal. `names` are of the participants, where they
/// are no ranks (About::names).
StructureDifference structure_difference(Exchange& exchange, const Subject& subject,
                                         const std::vector<std::string>& names = {});

}  // namespace lockstep::inspect
