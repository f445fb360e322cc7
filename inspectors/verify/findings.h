// verify's findings: one per verdict, kind and set of ranks, from what was found different.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/differences.h"
#include "inspectors/verify/verify.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

class VerifyFindings {
 public:
  /// `call`: what the ranks were to call.
  VerifyFindings(const Subject& subject, RankSet ranks, const VerifyOptions& options, const char* call = "verify");

  /// Whether a forward of the wrapper has run somewhere since it made the buffers equal.
  void set_buffers_written(bool written) { buffers_written_ = written; }
  /// These ranks did not call verify.
  void absent(const Meeting& meeting);
  /// By place: what each rank called verify for.
  void different_objects(const std::vector<nlohmann::json>& signatures);
  void structure(std::vector<Finding> findings);
  /// `items` of `subject`, which is what the ranks have in common.
  void differences(const Subject& subject, const std::vector<ItemDifference>& items);

  /// All of them, and an ok where there is none other.
  std::vector<Finding> take(const Report& report);

 private:
  /// Names of what verify has no eyes for.
  std::vector<std::string> not_compared() const;
  /// What an ok has to add: what could differ all the same.
  std::string unchecked() const;
  Finding finding(Severity severity, const char* verdict) const;

  const Subject& subject_;
  const RankSet ranks_;
  const VerifyOptions& options_;
  const std::string call_;
  std::string object_;
  bool buffers_written_ = false;
  std::vector<Finding> findings_;
};

}  // namespace lockstep::inspect
