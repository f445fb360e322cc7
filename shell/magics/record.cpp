// %record keeps what ranks receive, so that one of them can run again, alone.
#include "collectives/record/rank_files.h"
#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr int64_t kSteps = 4;

CellOutcome record(MagicCall& call) {
  const std::vector<std::string>& words = call.given.words();
  SessionCore& session = call.session;
  const std::string what = words.empty() ? "on" : words[0];
  if (words.size() > 1 && what != "on") throw UsageError("%record " + what + " takes no number: %record on K does");
  if (session.options().rehearsal) return {};  // no cell runs
  if (what != "on" && what != "off") {
    session.message(session.save_recording(what));
    return {};
  }
  const int64_t steps = words.size() > 1 ? parse_count(words[1], "the number of steps") : kSteps;
  if (steps > dist::kMostRecordedSteps)
    throw UsageError("%record on K: K is at most " + std::to_string(dist::kMostRecordedSteps));
  return {.status = session.record(what == "on" ? steps : 0), .findings = {}};
}

const RegisterMagic kRecord(
    {.name = "record",
     .summary = "keeps what ranks receive in their last steps, so that one can run again, alone",
     .help =
         "%record on [K]  from here on, of the last K steps (4); before the first collective\n"
         "%record off     ends that\n"
         "%record FILE    writes what is recorded: lockstep replay FILE --rank R runs rank R again, without the "
         "others\n"
         "Steps are marked: if (auto step = ddp::step(net, optimizer)) { … }. Without marks all is kept. At its end "
         "the\nsession writes a file by itself where a cell has failed.",
     .takes = {"[on|off|FILE]", "[K]"},
     .line = record});

}  // namespace
}  // namespace lockstep::shell
