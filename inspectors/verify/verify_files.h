// Compares whether saved replicas are the same: files and checkpoints are compared as verify() compares ranks.
#pragma once
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// Compares saved replicas (saved_replica.h); the first path is rank 0 in `ranks` of findings, and messages name the
/// files. Files of one kind are compared in everything that they hold. Files of different kinds, such as a complete
/// model and a state dict, are compared in the tensors that both have; names are compared without what a wrapper or a
/// dictionary puts before them (`module.`, `model.`), and findings say what was left out. Local. Throws
/// dist::ArgumentError for less than two paths and for files that can't be read.
Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options = {});

/// Returns what messages call these paths: their last parts if these are different, the paths otherwise.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

}  // namespace lockstep::inspect
