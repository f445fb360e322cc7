// Reads folders of torch.distributed.checkpoint: a `.metadata`, and files (`.distcp`) with the shards that each rank
// wrote. Tensors are put together from their shards, so checkpoints of different numbers of ranks can be compared.
#pragma once
#include <string>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// Adds every tensor and value of the checkpoint in `folder`, by name. A tensor of one shard is a view of its mapped
/// file; others are copied together. Bytes of the folder's files that belong to nothing become unseen items. What the
/// values take beyond the files' size is taken from `limit`. Throws std::runtime_error for a shard that is missing, of
/// another size than the metadata say, or there twice.
void add_checkpoint_folder(Subject& subject, const std::string& folder, ReadingLimit& limit);

}  // namespace lockstep::inspect
