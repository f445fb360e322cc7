// A case is what is known of a job's ranks by what it left behind.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/remains/remains.h"
#include "protocol/rank_set.h"
#include "protocol/verdict.h"

namespace lockstep::inspect::judging {

struct Case {
  explicit Case(const Remains& remains);

  const Remains& remains;
  std::vector<const Evidence*> dumps;  // of the Flight Recorder, and collective logs
  RankSet world;  // all ranks that something names
  RankSet dumped;  // of which there is a dump
  RankSet failed;  // raised an exception, or died of what they did themselves
  RankSet ended;  // their processes are gone
  RankSet killed;  // by a signal, or left without an exception: they are not in what they had called
  RankSet by_themselves;  // failed, and not because a transport gave up on another rank
  RankSet taken_along;  // their launcher ended them, as it does after another rank has failed
  RankSet outside;  // finished, or raised an error of their own: nor are they, even where a dump says so
  std::map<std::string, RankSet> logged;  // group → ranks whose collective log says what they have called

  /// Whether the ranks' own logs say what they have called in a group, so that it is proven.
  bool is_logged(const std::string& group, const RankSet& ranks) const;

  /// Whether a dump says which ranks are in the group. Of Gloo's groups it describes the default one alone, at most.
  bool has_members(const std::string& name) const;

  /// Returns ranks that had called number `seq` of a group, or a later one, before they ended.
  RankSet ended_after(const std::string& group, int64_t seq) const;

  /// Returns ranks of which nothing says what they had called: they may have ended inside of a collective.
  RankSet ended_without_a_word() const;

  /// Returns ranks that wait where `call` was made, by their stacks: at that line of the program, or where no line is known
  /// in a function of that name. Which number their calls have, stacks do not tell.
  RankSet waits_by_stacks(const EvidenceCall& call) const;

  /// Returns "all_reduce #3 of default_pg (train.py:12)"; empty if it is not known.
  std::string last_call(int rank) const;

  /// Says what a rank does that others wait for: "raised ValueError (train.py:12)". They wait in `group`.
  std::pair<std::string, FindingKind> what_it_does(int rank, const std::string& group) const;
};

}  // namespace lockstep::inspect::judging
