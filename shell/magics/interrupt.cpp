// %interrupt and %abort: end what ranks are at, and keep their state.
#include "protocol/error.h"
#include "shell/session_impl.h"

namespace lockstep::shell {
namespace {

/// The ranks of the arguments that sit in a cell; says so where there are none.
RankSet busy_of(MagicCall& call) {
  if (!call.session.started()) {
    call.session.message("no ranks are running");
    return {};
  }
  RankSet ranks = call.session.busy_ranks();
  if (!call.arguments.empty()) ranks = ranks & call.session.parse_ranks(call.arguments);
  if (ranks.empty()) call.session.message("no cell is running there");
  return ranks;
}

/// What became of `ranks`.
void tell(MagicCall& call, const RankSet& ranks, const char* done) {
  const RankSet left = call.session.busy_ranks() & ranks;
  const RankSet back = ranks - left;
  const auto words = [](const RankSet& set) { return (set.size() == 1 ? "rank " : "ranks ") + set.str(); };
  if (!back.empty())
    call.session.message(words(back) + (back.size() == 1 ? " was " : " were ") + done, {{"ranks", back}});
  if (!left.empty()) call.session.message(words(left) + " did not come back", {{"ranks", left}});
}

CellOutcome interrupt(MagicCall& call) {
  if (const RankSet ranks = busy_of(call); !ranks.empty()) {
    call.session.interrupt(ranks);
    tell(call, ranks, "interrupted");
  }
  return {};
}

CellOutcome abort(MagicCall& call) {
  if (const RankSet ranks = busy_of(call); !ranks.empty()) {
    call.session.abort(ranks, "%abort");
    tell(call, ranks, "freed");
  }
  return {};
}

const RegisterMagic kInterrupt(
    {.name = "interrupt",
     .usage = "%interrupt [SPEC]",
     .summary = "interrupts the cells of all ranks, or of some; their state is kept",
     .help = "What Ctrl-C does to a cell that runs. Loops, sleeps and collectives end with \"interrupted\".",
     .line = interrupt,
     .cell = {}});

const RegisterMagic kAbort(
    {.name = "abort",
     .usage = "%abort [SPEC]",
     .summary = "frees ranks that are stuck in a collective; their state is kept",
     .help = "Their cells end as aborted. The ranks connect to one another again before the next cell.",
     .line = abort,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
