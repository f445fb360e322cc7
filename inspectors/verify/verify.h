// verify checks that this is the same on every rank. It compares modules, DDP wrappers, optimizers, tensors,
// containers, random number generators and plain values bit by bit. For differences it reports rank, tensor, number of
// elements, and distance.
//
//   auto report = inspect::verify(net);                     // on every rank
//   inspect::verify(optimizer, inspect::VerifyOptions().name("optimizer").deadline(std::chrono::seconds(30)));
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/subject.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

enum class Method {
  kFingerprint,  // compares hashes; only tensors that differ are sent
  kBroadcast,  // every rank compares its bytes with those of the lowest rank
  kAllGather,  // allclose with rtol and atol
  kAllReduce,  // compares hashes by an all_reduce of the program's default group, on the device of the tensors
};

struct VerifyOptions : InspectOptionsOf<VerifyOptions> {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_FIELD
#include "inspectors/options/verify.def"
  /// Bytes of differing chunks that are compared element by element, over all tensors; 64 MiB by default. Beyond this,
  /// findings only name the tensors. Costs the transfer of these bytes if tensors differ.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
  /// Whether `ok` is published, too. True by default.
  TORCH_ARG(bool, publish_ok) = true;
};

/// Collective over the options' ranks, over the inspectors' own connections: the program's groups are not used, except
/// by kAllReduce. If a rank does not call, or calls with another object, there is a finding and no comparison. The
/// report is the same on every rank that took part, except for times. Does not change the object. Throws
/// dist::ArgumentError for tensors without bytes to compare (sparse, meta) and for ranks that do not exist,
/// dist::PeerLeft if a rank is lost during the call; with kAllReduce what dist::all_reduce throws, and
/// dist::ArgumentError for other ranks than all.
Report verify_subject(const Subject& subject, const VerifyOptions& options);

template <typename T>
Report verify(const T& object, const VerifyOptions& options = {}) {
  return verify_subject(subject_of(object, options.name()), options);
}

/// Takes a name as well, as `%verify` calls it.
template <typename T>
Report verify(const T& object, std::string name) {
  return verify(object, VerifyOptions().name(std::move(name)));
}

/// Compares `subjects` of this process (such as saved replicas), one for each of `ranks`, in order. `names` are what
/// messages call them in place of "rank 2", by rank. Local.
Report verify_here(const std::vector<Subject>& subjects, const RankSet& ranks, const VerifyOptions& options,
                   const std::vector<std::string>& names = {});

/// Describes the calling rank's part of a divided tensor.
struct Part {
  Item item;
  /// How the tensor is divided, and which part this is. Ranks whose parts have the same name and place should have them
  /// alike.
  std::string place;
  RankSet mesh;  // the ranks among which the tensor is divided and replicated: what one gradient reduction covers
};

/// An object whose parts are divided among the ranks (FullyShardedDataParallel, DTensor):
///   ShardedSubject subject{.common = …, .parts = {{.item = …, .place = "Shard(0), part 1 of 2", .mesh = {0, 1}}}};
struct ShardedSubject {
  /// What should be equal on all ranks: the parameters that are not divided, and how the others are divided, as values.
  Subject common;
  std::vector<Part> parts;
  int64_t elsewhere = 0;  // divided tensors whose mesh does not have the calling rank
};

/// Compares what should be equal among the ranks where it should be, and searches a part that one rank has for itself
/// for NaN and Inf; the `ok` says what was not compared. Collective over the options' ranks, as verify_subject. Ranks
/// that have a part alike are found by its name and place, also if no mesh has them all.
Report verify_sharded(const ShardedSubject& subject, const VerifyOptions& options);

/// Compares saved replicas (saved_replica); the first path is rank 0 in `ranks` of findings, and messages name the
/// files. Files of one kind are compared in everything that they hold. Files of different kinds, such as a complete
/// model and a state dict, are compared in the tensors that both have; names are compared without what a wrapper or a
/// dictionary puts before them (`module.`, `model.`), and findings say what was left out. Local. Throws
/// dist::ArgumentError for less than two paths and for files that can't be read.
Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options = {});

/// Returns what messages call these paths: their last parts if these are different, the paths otherwise.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

class ReadingLimit;

/// The format of a saved replica.
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
