// What the analysis of a hang proves about ranks that are made up.
#pragma once
#include <gtest/gtest.h>

#include "inspectors/hang/analysis.h"
#include "tests/inspectors/made_up_ranks.h"

namespace lockstep::inspect {

/// The finding of the one hang that is proven; that there is one is expected.
inline Finding proven_hang(const MadeUp& ranks) {
  const auto analysis = analyse_hang(ranks.picture);
  EXPECT_EQ(analysis.proven.size(), 1u);
  if (analysis.proven.size() != 1) return {};
  EXPECT_EQ(analysis.proven[0].finding.severity, Severity::fault);
  EXPECT_EQ(analysis.proven[0].finding.inspector, "hang");
  return analysis.proven[0].finding;
}

inline void expect_no_hang(const MadeUp& ranks) {
  for (const auto& hang : analyse_hang(ranks.picture).proven) ADD_FAILURE() << hang.finding.message;
}

}  // namespace lockstep::inspect
