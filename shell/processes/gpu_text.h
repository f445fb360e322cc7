// Writes GPUs as people read them.
#pragma once
#include <string>
#include <vector>

#include "inspectors/gpus/gpus.h"

namespace lockstep::shell {

/// Returns the header of gpu_row().
std::vector<std::string> gpu_header();
/// Returns number, name, memory in use, load, temperature, ECC errors, and what is wrong.
std::vector<std::string> gpu_row(const gpus::Gpu& gpu);

/// Returns "12.9 GB".
std::string gigabytes(int64_t bytes);

}  // namespace lockstep::shell
