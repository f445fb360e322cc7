// %%lockstep finds the first operator at which ranks part, or at which a rank does not repeat itself.
#include <fmt/format.h>

#include <algorithm>

#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/object_list.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr InspectorOption kLockstepOptions[] = {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_ROW
#include "inspectors/options/lockstep.def"
};

/// The body as a step that runs twice. Its lines stay where they are.
void run_twice(SessionCore& session, std::string body, int line, CellSettings settings, const std::string& options) {
  settings.run = nullptr;
  if (!settings.ranks) settings.ranks = session.options().replay ? session.cell_ranks() : session.target_ranks();
  body.replace(static_cast<size_t>(line - 1), 0, "__lockstep::lockstep_self([&] {");
  body += fmt::format("}}, {}, {}.ranks({}));\n", object_list(session, *settings.ranks, "__lockstep::StateList"),
                      options, cxx_ranks(*settings.ranks));
  session.run_code(body, settings, 1);
}

void lockstep_cell(MagicCall& call, CellSettings& settings) {
  const std::string options = "__lockstep::LockstepOptions()" + cxx_options(call.given, kLockstepOptions);
  if (call.given.has("--self")) {
    settings.run = [&session = call.session, body = call.body, line = call.line, options](const CellSettings& ran) {
      run_twice(session, body, line, ran, options);
    };
    return;
  }
  settings.before = "__lockstep::begin_lockstep(" + options + ");";
  settings.after = [&session = call.session, options](const CellSettings& ran, const CellEnd& end) {
    if (!end.began) return std::string("__lockstep::drop_lockstep();");
    // Ranks that threw or were freed would only be said to lack what they did not come to. Where hardly any came to the
    // end, all are compared as far as they came.
    const RankSet whole = *ran.ranks & end.completed;
    const bool cut_short = whole.size() < std::min<size_t>(ran.ranks->size(), 2);
    return fmt::format("__lockstep::end_lockstep({}, {}.ranks({}){});",
                       object_list(session, *ran.ranks, "__lockstep::NameList"), options,
                       cxx_ranks(cut_short ? *ran.ranks : whole), cut_short ? ".cut_short(true)" : "");
  };
}

const RegisterMagic kLockstep(
    {.name = "lockstep",
     .summary = "the first operator at which ranks part, or a step does not repeat itself",
     .help = "Fingerprints what every operator of this cell reads and writes, forward and backward, and compares the "
             "ranks\nwhen it is over. Data may differ between ranks; parameters, what becomes of equal inputs, and the "
             "operators\nthat run may not.",
     .cell_takes = with_options({{"--self",
                                  "run the cell twice on each rank, from the same state: modules, optimizers and "
                                  "tensors that cells have defined, and the generators. It runs as a block: what it "
                                  "declares is local to it"}},
                                kLockstepOptions),
     .cell = lockstep_cell});

}  // namespace
}  // namespace lockstep::shell
