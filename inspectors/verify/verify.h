// verify: is this the same on every rank? Bit by bit, of modules, DDP wrappers, optimizers, tensors, containers, random
// number generators and plain values; and where it is not, which rank, which tensor, how many elements, how far apart.
//
//   auto report = inspect::verify(net);                     // on every rank
//   inspect::verify(optimizer, inspect::VerifyOptions().name("optimizer").deadline(std::chrono::seconds(30)));
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/subject.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

enum class Method {
  kFingerprint,  // compare hashes; data moves only for what differs
  kBroadcast,  // every rank compares its bytes with the lowest rank's
  kAllGather,  // allclose with rtol and atol: the lesson's way
};

struct VerifyOptions {
  /// What findings call it. Empty: by its kind ("module", "tensor").
  TORCH_ARG(std::string, name) = {};
  TORCH_ARG(Method, method) = Method::kFingerprint;
  /// Of kAllGather: |a - b| <= atol + rtol |b|.
  TORCH_ARG(double, rtol) = 1e-5;
  TORCH_ARG(double, atol) = 1e-8;
  /// The ranks that compare, each of which must call. Unset: all that are alive.
  TORCH_ARG(std::optional<RankSet>, ranks) = std::nullopt;
  /// How long to wait for ranks that do not call.
  TORCH_ARG(std::chrono::milliseconds, deadline) = std::chrono::seconds(10);
  /// Bytes of differing chunks that are looked at element by element, over all tensors; of what is beyond, only that it
  /// differs is said.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
  /// The training step that findings name, where the object does not know it.
  TORCH_ARG(std::optional<int64_t>, step) = std::nullopt;
  /// Whether findings go to the sink (the session), too. Notes that all is well can be left out.
  TORCH_ARG(bool, publish) = true;
  TORCH_ARG(bool, publish_ok) = true;
};

/// Collective over the options' ranks, over connections of its own: the program's groups are not used, and a rank that does
/// not call, or calls for something else, ends it with a finding. The report is the same on every rank that took part (times
/// apart). Changes nothing that it looks at. Throws c10::Error for tensors that have no bytes to compare (sparse, meta),
/// dist::Error when a rank is lost meanwhile.
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

/// Hands a report to the session, by the rank that speaks for all.
void publish_as_reporting_rank(const VerifyOptions& options, const Report& report);

/// Compares `subjects`, one for each of `ranks` in order, that are all in this process (saved replicas, say). Local.
Report verify_here(const std::vector<Subject>& subjects, const RankSet& ranks, const VerifyOptions& options);

}  // namespace lockstep::inspect
