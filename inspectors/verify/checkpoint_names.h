// The names of tensors and values in the files of torch.distributed.checkpoint. These files contain one archive for
// each tensor and value, without its name; names are in the file `.metadata` of the same folder.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace lockstep::inspect {

/// Offsets of archives in the file at `path` → names: "model.fc1.weight", or "model.fc1.weight[4, 0]" for a shard that
/// begins at that element. Empty if there is no `.metadata` beside the file. Throws std::runtime_error if it can't be
/// read.
std::map<uint64_t, std::string> checkpoint_names(const std::string& path);

}  // namespace lockstep::inspect
