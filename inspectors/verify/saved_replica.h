// Replicas in files: what torch::save of LibTorch or torch.save of Python has written, for people whose job ran
// elsewhere.
#pragma once
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// The tensors and plain values of a file under their names (`fc1.weight`). Those of Python's files are read where they
/// lie in the file, when they are looked at. Throws dist::ArgumentError that names the file where it can't be read.
Subject saved_replica(const std::string& path);

/// Compares files as verify compares ranks; the first is rank 0. Local. Findings are told as verify's are.
Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options = {});

}  // namespace lockstep::inspect
