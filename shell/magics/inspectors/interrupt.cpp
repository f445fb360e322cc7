// %interrupt and %abort: end what ranks are at, and keep their state.
#include "shell/magics/inspectors/job_magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

/// Returns the ranks of the arguments that sit in a cell; says so where there are none.
RankSet busy_of(MagicCall& call) {
  if (!call.session.started()) {
    call.session.message("no ranks are running");
    return {};
  }
  RankSet ranks = call.session.busy_ranks();
  if (const auto spec = call.given.word()) ranks = ranks & call.session.parse_ranks(*spec);
  if (ranks.empty()) call.session.message("no cell is running there");
  return ranks;
}

/// Reports which of `ranks` have left their cells, and returns the others.
RankSet report(MagicCall& call, const RankSet& ranks, const char* done) {
  const RankSet left = call.session.busy_ranks() & ranks;
  const RankSet back = ranks - left;
  if (!back.empty())
    call.session.message(back.words() + (back.size() == 1 ? " was " : " were ") + done, {{"ranks", back}});
  return left;
}

CellOutcome interrupt(MagicCall& call) {
  const RankSet ranks = busy_of(call);
  if (ranks.empty()) return {};
  call.session.interrupt(ranks);
  if (const RankSet left = report(call, ranks, "interrupted"); !left.empty())
    call.session.message(left.words() + " did not come back; %hang and %stack say where", {{"ranks", left}});
  return {};
}

CellOutcome abort(MagicCall& call) {
  const RankSet ranks = busy_of(call);
  if (ranks.empty()) return {};
  call.session.abort(ranks, "%abort");
  if (const RankSet left = report(call, ranks, "freed"); !left.empty())
    call.session.message(left.words() + (left.size() == 1 ? " is" : " are") +
                             " not stuck in a collective: %hang says where; %interrupt ends what a rank is at",
                         {{"ranks", left}});
  return {};
}

const RegisterMagic kInterrupt(
    {.name = "interrupt",
     .summary = "interrupts the cells of all ranks, or of some; their state is kept",
     .help = "What Ctrl-C does to a cell that runs. Loops, sleeps and collectives end with \"interrupted\".",
     .takes = {"[SPEC]"},
     .line = interrupt,
     .at_any_time = true,
     .in_jobs = true});

const RegisterMagic kAbort(
    {.name = "abort",
     .summary = "frees ranks that are stuck in a collective; their state is kept",
     .help = "Their cells end as aborted. The ranks connect to one another again before the next cell.\n"
             "At a prompt over a Python job, whether its ranks have stopped or not, it ends the connections of their "
             "process groups:\n"
             "collectives raise an exception, and the program makes new groups, or ends. It says so first; --yes does "
             "it.",
     .takes = {"[SPEC]", {"--yes,-y", "do it, at a prompt over a Python job"}},
     .line = abort,
     .at_any_time = true,
     .in_sessions = true,
     .job_line = abort_of_job});

}  // namespace
}  // namespace lockstep::shell
