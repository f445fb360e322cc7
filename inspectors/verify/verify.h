// verify: is this the same on every rank? Bit by bit, of modules, DDP wrappers, optimizers, tensors, containers, random
// number generators and plain values; and where it is not, which rank, which tensor, how many elements, how far apart.
//
//   auto report = inspect::verify(net);                     // on every rank
//   inspect::verify(optimizer, inspect::VerifyOptions().name("optimizer").deadline(std::chrono::seconds(30)));
#pragma once
#include <cstdint>
#include <string>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/subject/subject.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

enum class Method {
  kFingerprint,  // compare hashes; data moves only for what differs
  kBroadcast,  // every rank compares its bytes with the lowest rank's
  kAllGather,  // allclose with rtol and atol: the lesson's way
};

struct VerifyOptions : InspectOptionsOf<VerifyOptions> {
  /// How tensors are compared. By default by fingerprint, which reads every byte once and exchanges a few numbers where
  /// all are equal; the others move every tensor between the ranks.
  TORCH_ARG(Method, method) = Method::kFingerprint;
  /// For kAllGather: elements agree where |a - b| <= atol + rtol |b|. 1e-5 and 1e-8 by default. Cost nothing.
  TORCH_ARG(double, rtol) = 1e-5;
  TORCH_ARG(double, atol) = 1e-8;
  /// Bytes of differing chunks that are compared element by element, over all tensors; 64 MiB by default. Of what is
  /// beyond, findings name the tensors only. Costs the transfer of these bytes, where tensors differ.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
  /// Whether notes that all is well are published, too. True by default.
  TORCH_ARG(bool, publish_ok) = true;
};

/// Collective over the options' ranks, over the inspectors' own connections: the program's groups are not used, and a
/// rank that does not call, or calls for something else, ends it with a finding. The report is the same on every rank
/// that took part (times apart). Changes nothing that it looks at. Throws dist::ArgumentError for tensors that have no
/// bytes to compare (sparse, meta) and for ranks that are not there, dist::PeerLeft when a rank is lost meanwhile.
Report verify_subject(const Subject& subject, const VerifyOptions& options);

template <typename T>
Report verify(const T& object, const VerifyOptions& options = {}) {
  return verify_subject(subject_of(object, options.name()), options);
}

/// The same under a name, as `%verify` calls it.
template <typename T>
Report verify(const T& object, std::string name) {
  return verify(object, VerifyOptions().name(std::move(name)));
}

/// Compares `subjects`, one for each of `ranks` in order, that are all in this process (saved replicas, say). Local.
Report verify_here(const std::vector<Subject>& subjects, const RankSet& ranks, const VerifyOptions& options);

}  // namespace lockstep::inspect
