// What lies where in the files of torch.distributed.checkpoint: they hold one archive for each tensor and value,
// without its name. Names are in the file `.metadata` of the same folder.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace lockstep::inspect {

/// By the byte of the file at `path` where it begins: "model.fc1.weight", or "model.fc1.weight[4, 0]" for a shard that
/// begins at that element. Empty where no `.metadata` lies beside the file. Throws std::runtime_error where it can't be
/// read.
std::map<uint64_t, std::string> checkpoint_names(const std::string& path);

}  // namespace lockstep::inspect
