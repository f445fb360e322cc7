// Files of saved replicas, which `lockstep verify` reads: those of torch.save, of safetensors, of LibTorch, and of
// torch.distributed.checkpoint with its .metadata.
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "inspectors/verify/checkpoint_metadata.h"
#include "inspectors/verify/verify.h"
#include "protocol/dist_error.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

void read(const std::string& path) {
  inspect::ReadingLimit limit = reading_limit();
  try {
    inspect::saved_replica(path, limit);
  } catch (const dist::ArgumentError&) {
  }
}

void saved_file(std::string_view bytes) { read(written("file.pt", bytes)); }

/// The .metadata of a checkpoint, in a folder with its shards, which are those of tests/inspectors/files/sharded-2.
void checkpoint_metadata(std::string_view bytes) {
  static const std::string checkpoint = [] {
    const std::string copy = folder() + "/checkpoint";
    std::filesystem::copy(LOCKSTEP_TEST_FILES "/sharded-2", copy);
    return copy;
  }();
  written("checkpoint/.metadata", bytes);
  read(checkpoint);
}

/// The first file of shards of that checkpoint.
void shards(std::string_view bytes) {
  static const std::string checkpoint = [] {
    const std::string copy = folder() + "/sharded";
    std::filesystem::copy(LOCKSTEP_TEST_FILES "/sharded-2", copy);
    return copy;
  }();
  written("sharded/__0_0.distcp", bytes);
  read(checkpoint);
  read(checkpoint + "/__0_0.distcp");
}

const AddTarget kSavedFile("saved_file", saved_file), kCheckpointMetadata("checkpoint_metadata", checkpoint_metadata),
    kShards("shards", shards);

}  // namespace
}  // namespace lockstep::fuzz
