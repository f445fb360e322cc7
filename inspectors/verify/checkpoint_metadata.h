// Reads `.metadata` in a folder of torch.distributed.checkpoint: which tensors and values the checkpoint has, of which
// shards they consist, and where each shard is. It is a pickle, which is read as data (inspectors/pickle/).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// A shard of a tensor: the index of its first element, and its size in each dimension.
struct CheckpointChunk {
  std::vector<int64_t> offset, size;
};

/// A tensor, or a value, which has no shards.
struct CheckpointEntry {
  std::string name;  // "model.fc1.weight"
  bool is_tensor = false;
  std::vector<int64_t> size;
  std::vector<CheckpointChunk> chunks;
};

/// Says where a shard or value is: bytes of a file of the folder.
struct CheckpointPart {
  std::string name;
  std::vector<int64_t> offset;  // of the shard; empty for values and for tensors without dimensions
  std::string file;  // relative to the folder
  uint64_t begin = 0, length = 0;
};

struct CheckpointMetadata {
  std::vector<CheckpointEntry> entries;
  std::vector<CheckpointPart> parts;
};

/// What the entries take is taken from `limit`. Throws std::runtime_error for a file that can't be read, and for parts
/// that are compressed or outside the folder.
CheckpointMetadata read_checkpoint_metadata(const std::string& path, ReadingLimit& limit);

/// Returns the names of the archives in one file of a checkpoint, from the `.metadata` in its folder: offsets of
/// archives → "model.fc1.weight", or "model.fc1.weight[4, 0]" for a shard that begins at that element. Empty if there
/// is no `.metadata`. Throws std::runtime_error if it can't be read.
std::map<uint64_t, std::string> checkpoint_names(const std::string& path, ReadingLimit& limit);

}  // namespace lockstep::inspect
