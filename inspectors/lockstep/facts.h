// What one rank tells the others of what it recorded.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/lockstep/overflow.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Of two runs that this rank has compared with one another.
struct SelfFacts {
  std::optional<Finding> finding;  // without ranks; its message begins after them
  int64_t collectives = 0;  // that came before what the finding is about; the largest number without one
  int64_t operators = 0;  // of the first run
  int64_t left_out = 0;  // beyond max_operators
};

/// Of one run that is compared between ranks.
struct RunFacts {
  Hash digest{};  // of all operators: where it is equal everywhere, nothing else is exchanged
  int64_t operators = 0, left_out = 0;
  int64_t backwards = 0;
  bool read_too_early = false;  // something read what a collective was still to write
  CalledBy may_run_over;  // reductions of integers

  bool same_run(const RunFacts& other) const {
    return digest == other.digest && operators == other.operators && left_out == other.left_out;
  }
};

void to_json(nlohmann::json& json, const SelfFacts& facts);
void from_json(const nlohmann::json& json, SelfFacts& facts);
void to_json(nlohmann::json& json, const RunFacts& facts);
void from_json(const nlohmann::json& json, RunFacts& facts);

}  // namespace lockstep::inspect
