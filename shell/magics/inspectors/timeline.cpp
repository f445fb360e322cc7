// %timeline writes what all ranks did as a trace for Perfetto.
#include <fmt/format.h>

#include <filesystem>

#include "shell/magics/inspectors/inspector_magic.h"

namespace lockstep::shell {
namespace {

CellOutcome timeline(MagicCall& call) {
  const std::string word = *call.given.word();
  const CellSettings settings = inspector_settings(call);
  if (word == "on" || word == "off")
    return run_inspector(call, fmt::format("__lockstep::set_operator_recording({})", word == "on"), settings);
  // A rank may have another working directory.
  const auto folder = call.session.directory().empty() ? std::filesystem::current_path()
                                                       : std::filesystem::path(call.session.directory());
  return run_inspector(call, "__lockstep::timeline(" + quoted((folder / word).string()) + ")", settings,
                       /*shows=*/true);
}

const RegisterMagic kTimeline(
    {.name = "timeline",
     .summary = "cells, operators, collectives and buckets of all ranks as a trace for Perfetto",
     .help = "on     operators are recorded from here (collectives and cells always are)\n"
             "FILE   writes the trace; it opens at ui.perfetto.dev and in chrome://tracing\n"
             "off    no more operators are recorded",
     .takes = {"on|off|FILE"},
     .line = timeline});

}  // namespace
}  // namespace lockstep::shell
