// %rank, %%rank and %%distributed choose the ranks on which cells run.
#include "protocol/error.h"
#include "shell/scripts/magic_parser.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kAfterDeath = "%rank all goes back to those that live, %dist_reset starts all ranks afresh";

void say_where_cells_run(SessionCore& session) {
  const RankSet ranks = session.target_ranks();
  if (ranks.empty())
    session.message("cells run on no rank: " + session.dead_ranks().words() + " died; " + kAfterDeath,
                    {{"ranks", ranks}});
  else
    session.message("cells run on " + ranks.words(), {{"ranks", ranks}});
}

CellOutcome rank_line(MagicCall& call) {
  const auto [spec, code] = split_spec(call.arguments);
  if (spec.empty()) {
    say_where_cells_run(call.session);
    return {};
  }
  const RankSet ranks = call.session.parse_ranks(spec);
  if (code.starts_with('%')) {
    const std::string magic = code.substr(0, code.find_first_of(" \t"));
    throw UsageError(magic + " can't stand after %rank " + spec +
                     ", which takes code: where a magic may concern some ranks only, " + magic + " --ranks " + spec +
                     " says so");
  }
  if (!code.empty()) {
    CellSettings settings;
    settings.ranks = ranks;
    call.session.run_code(code, settings, call.line);
    return {};
  }
  if (ranks == RankSet::all(call.session.world_size())) {
    call.session.settings().target.reset();
  } else {
    call.session.check_alive(ranks);
    call.session.settings().target = ranks;
  }
  say_where_cells_run(call.session);
  return {};
}

void rank_cell(MagicCall& call, CellSettings& settings) {
  settings.ranks = call.session.parse_ranks(*call.given.word());
}

void distributed_cell(MagicCall& call, CellSettings& settings) {
  call.session.start();
  settings.ranks = call.session.cell_ranks();
}

const RegisterMagic kRank(
    {.name = "rank",
     .summary = "the ranks of the cells from now on; one line on those ranks; with %%: the ranks of this cell",
     .help = "SPEC: all, 3, 0,2, 0-3, 0:8:2 (a slice), ^1 (all but 1), or a list of these: [0,2-4].\n"
             "%rank SPEC       cells that name no ranks run on these, until %rank all\n"
             "%rank SPEC CODE  runs CODE on these\n"
             "%rank            says where cells run\n"
             "%%rank SPEC      this cell's ranks",
     .takes = {"[SPEC]", "[CODE]"},
     .cell_takes = {"SPEC"},
     .line = rank_line,
     .cell = rank_cell,
     .verbatim = true,
     .in_jobs = true});

const RegisterMagic kDistributed({.name = "distributed",
                                  .summary = "this cell runs on all ranks",
                                  .help = "%rank and %dist_mode do not change that.",
                                  .cell = distributed_cell,
                                  .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
