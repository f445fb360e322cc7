// %time_sync: what synchronising gradients costs. A cell that calls inspect::time_sync on all live ranks.
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/object_list.h"

namespace lockstep::shell {
namespace {

constexpr InspectorOption kTimeSyncOptions[] = {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_ROW
#include "inspectors/options/time_sync.def"
};

CellOutcome time_sync(MagicCall& call) {
  const std::vector<std::string>& words = call.given.words();
  const std::string options = ".name(" + quoted(words[0]) + ")" + cxx_options(call.given, kTimeSyncOptions);
  const CellSettings settings = inspector_settings(call);
  // Without a word on what the step changes, all that cells have defined counts.
  std::string code = words.size() > 1 ? "__lockstep::time_sync(" : "__lockstep::time_sync_among(";
  code += "__lockstep::TimeSyncOptions()" + options;
  for (const std::string& word : words) code += ", " + word;
  if (words.size() == 1)
    for (const std::string& name : object_names(call.session, *settings.ranks))
      if (name != words[0]) code += ", " + name;
  return run_inspector(call, code + ")", settings, /*shows=*/true);
}

const RegisterMagic kTimeSync(
    {.name = "time_sync",
     .summary = "a step with gradient synchronisation against one without: exposed, hidden, who is slow",
     .takes = with_options({{"STEP", "a callable that trains one step, or takes a bool: whether to synchronise"},
                            {"[STATE...]",
                             "what it changes (the wrapper, the optimizer, ...); left out: every module, optimizer and "
                             "tensor that cells have defined. It is put back afterwards, as the random numbers are"}},
                           kTimeSyncOptions),
     .line = time_sync});

}  // namespace
}  // namespace lockstep::shell
