// %timeline: what all ranks did, as a trace for Perfetto.
#include <fmt/format.h>

#include <filesystem>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kTimelineUsage = "%timeline on|off|FILE";

CellOutcome timeline(MagicCall& call) {
  const auto word = MagicArguments(call.arguments, kTimelineUsage).rest_word();
  if (!word)
    throw UsageError(std::string("%timeline needs a file to write: %timeline step.json; usage: ") + kTimelineUsage);
  const CellSettings settings = inspector_settings(call, std::nullopt);
  if (*word == "on" || *word == "off")
    return run_inspector(call, fmt::format("__lockstep::set_operator_recording({})", *word == "on"), settings);
  // A rank may have another working directory.
  const auto folder =
      call.session.directory.empty() ? std::filesystem::current_path() : std::filesystem::path(call.session.directory);
  return run_inspector(call, "__lockstep::timeline(" + cxx_string((folder / *word).string()) + ")", settings,
                       /*shows=*/true);
}

const RegisterMagic kTimeline(
    {.name = "timeline",
     .usage = kTimelineUsage,
     .summary = "cells, operators, collectives and buckets of all ranks as a trace for Perfetto",
     .help = "on     operators are recorded from here (collectives and cells always are)\n"
             "FILE   writes the trace; it opens at ui.perfetto.dev and in chrome://tracing\n"
             "off    no more operators are recorded",
     .line = timeline,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
