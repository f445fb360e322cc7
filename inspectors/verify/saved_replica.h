// Replicas in files of LibTorch's torch::save and Python's torch.save, of a job that ran elsewhere.
#pragma once
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// The tensors and values of a file, with their names (`fc1.weight`). Tensors of Python's files are views of the mapped
/// file. Throws dist::ArgumentError, with the name of the file, if it can't be read.
Subject saved_replica(const std::string& path);

/// Compares files as verify() compares ranks; the first file is rank 0. Local. Findings are those of verify().
Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options = {});

}  // namespace lockstep::inspect
