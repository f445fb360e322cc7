// %%lockstep: the first operator at which ranks part, or at which a rank does not repeat itself.
#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/object_list.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kLockstepUsage = "%%lockstep [--self]";

std::string options_of(const RankSet& ranks) {
  return fmt::format("__lockstep::LockstepOptions().ranks({})", cxx_ranks(ranks));
}

/// The body as a step that runs twice. Its lines stay where they are.
void run_twice(SessionCore& session, std::string body, int line, CellSettings settings) {
  settings.run = nullptr;
  if (!settings.ranks) settings.ranks = session.target_ranks();
  body.replace(static_cast<size_t>(line - 1), 0, "__lockstep::lockstep_self([&] {");
  body += fmt::format("}}, {}, {});\n", object_list(session, *settings.ranks, "__lockstep::StateList"),
                      options_of(*settings.ranks));
  session.run_code(body, settings, 1);
}

void lockstep_cell(MagicCall& call, CellSettings& settings) {
  MagicArguments arguments(call.arguments, kLockstepUsage);
  const bool self = arguments.take_flag("", "--self");
  if (!arguments.rest().empty())
    throw UsageError(std::string("%%lockstep takes no words: it is for the lines below; usage: ") + kLockstepUsage);
  if (self) {
    settings.run = [&session = call.session, body = call.body, line = call.line](const CellSettings& ran) {
      run_twice(session, body, line, ran);
    };
    return;
  }
  settings.before = "__lockstep::begin_lockstep();";
  settings.after = [&session = call.session](const CellSettings& ran, const CellEnd& end) {
    if (!end.began) return std::string("__lockstep::drop_lockstep();");
    // Ranks that threw or were freed would only be said to lack what they did not come to. Where hardly any came to the
    // end, all are compared as far as they came.
    const RankSet whole = *ran.ranks & end.completed;
    const bool cut_short = whole.size() < std::min<size_t>(ran.ranks->size(), 2);
    return fmt::format("__lockstep::end_lockstep({}, {}{});", object_list(session, *ran.ranks, "__lockstep::NameList"),
                       options_of(cut_short ? *ran.ranks : whole), cut_short ? ".cut_short(true)" : "");
  };
}

const RegisterMagic kLockstep(
    {.name = "lockstep",
     .usage = kLockstepUsage,
     .summary = "the first operator at which ranks part, or a step does not repeat itself",
     .help =
         "Fingerprints what every operator of this cell reads and writes, forward and backward, and compares the "
         "ranks\n"
         "when it is over. Data may differ between ranks; parameters, what becomes of equal inputs, and the operators\n"
         "that run may not.\n"
         "--self     runs the cell twice on each rank, from the same state: modules, optimizers and tensors that "
         "cells\n"
         "           have defined, and the generators. It runs as a block: what it declares is local to it",
     .line = {},
     .cell = lockstep_cell});

}  // namespace
}  // namespace lockstep::shell
