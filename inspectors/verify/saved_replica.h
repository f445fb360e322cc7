// Reads replicas in files of LibTorch's torch::save, Python's torch.save and safetensors, and in folders of
// torch.distributed.checkpoint, of a job that ran elsewhere.
#pragma once
#include <string>

#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

class ReadingLimit;

enum class SavedFormat {
  python,  // torch.save
  libtorch,  // torch::save, TorchScript
  safetensors,
  checkpoint,  // a folder of torch.distributed.checkpoint
  checkpoint_part  // one .distcp file of it
};

struct SavedReplica : Subject {
  SavedFormat format = SavedFormat::python;
  bool is_module = false;  // a complete model of Python, with its class and attributes
};

/// Returns the tensors and values of a file or of a checkpoint's folder, with their names (`fc1.weight`). Tensors of
/// Python's files and of safetensors are views of the mapped file. What they take beyond the file's own bytes, and what
/// they repeat of these more than a few times, is taken from `limit`. Throws dist::ArgumentError, with the name of the
/// file, if it can't be read, and if that is more than is left.
SavedReplica saved_replica(const std::string& path, ReadingLimit& limit);
SavedReplica saved_replica(const std::string& path);

}  // namespace lockstep::inspect
