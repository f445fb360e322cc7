#include "inspectors/remains/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/remains/judges.h"

namespace lockstep::inspect {
namespace {

using namespace judging;

void say_what_is_missing(const Case& job, Verdicts& verdicts) {
  for (const std::string& each : job.remains.unread) {
    Finding note = about().finding(Severity::note, Verdict::unsupported);
    note.message = "not used: " + each;
    verdicts.add(Weight::remark, std::move(note));
  }
  size_t nameless = 0;
  for (const Evidence* dump : job.dumps) nameless += !dump->rank;
  if (nameless > 0) {
    Finding note = about().finding(Severity::note, Verdict::unsupported);
    note.message = fmt::format(
        "{} not compared, because neither the file's name nor its folder names the rank; name files as c10d does: "
        "trace_rank_3",
        nameless == 1 ? "1 dump was" : fmt::format("{} dumps were", nameless));
    verdicts.add(Weight::remark, std::move(note));
  }
  const RankSet silent = job.world - job.dumped - job.ended;
  if (job.dumped.empty() || silent.empty()) return;
  Finding note = about().finding(Severity::note, Verdict::missing);
  note.ranks = silent;
  note.message = fmt::format("there is no dump of {}: what {} called last is not known", silent.words(),
                             silent.size() == 1 ? "it" : "they");
  verdicts.add(Weight::remark, std::move(note));
}

/// Makes the finding where nothing is at fault.
Finding last_word(const Case& job, bool consequences) {
  if (job.remains.look && !consequences && job.dumped.empty()) return what_ranks_do(job);
  const bool is_known = job.remains.files > 0 && !consequences && !job.dumped.empty();
  Finding last = about().finding(Severity::note, is_known ? Verdict::ok : Verdict::unsupported);
  last.ranks = job.world | job.failed;
  if (job.remains.files == 0)
    last.message = "nothing of a job was found: no dump of the Flight Recorder, error file, traceback or stack";
  else if (consequences)
    last.message =
        "each error follows from the end or absence of another rank, of which these files have no error: "
        "look for a rank that was killed (out of memory, signals) or whose files are missing";
  else if (!is_known)
    last.message =
        "no rank has raised an exception; whether a collective is unfinished is not known, since no dump was read that "
        "names its rank";
  else
    last.message = fmt::format("no rank has raised an exception, and no collective is unfinished, by the dumps of {}",
                               job.dumped.words());
  return last;
}

}  // namespace

std::vector<Finding> judge(const Remains& remains) {
  const Case job(remains);
  Verdicts verdicts;
  say_what_is_missing(job, verdicts);
  judge_errors(job, verdicts);
  judge_collectives(job, verdicts);
  judge_stacks(job, verdicts);
  judge_mismatch_errors(job, verdicts);
  judge_size_mismatches(job, verdicts);
  judge_ends(job, verdicts);
  judge_communicators(job, verdicts);
  const bool consequences = verdicts.has(Weight::consequence);
  std::vector<Finding> findings = verdicts.take();
  if (!std::ranges::any_of(findings, is_fault)) findings.push_back(last_word(job, consequences));
  return findings;
}

}  // namespace lockstep::inspect
