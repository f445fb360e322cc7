// %memory: what holds memory on each rank, by the names of the session.
#include <fmt/format.h>

#include <set>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kMemoryUsage = "%memory [on|off] [EXPR...]";

/// The variables that all of these ranks see.
std::vector<std::string> variables(MagicCall& call, const RankSet& ranks) {
  std::vector<std::string> result;
  const auto response = call.session.ask(protocol::ListNames{});
  if (const auto* names = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : names->names)
      if (name.kind == "variable" && (ranks - name.ranks).empty()) result.push_back(name.name);
  return result;
}

CellOutcome memory(MagicCall& call) {
  std::vector<std::string> words = MagicArguments(call.arguments, kMemoryUsage).rest();
  const CellSettings settings = inspector_settings(call, std::nullopt);
  if (words.size() == 1 && (words[0] == "on" || words[0] == "off"))
    return run_inspector(call, fmt::format("__lockstep::set_memory_watch({})", words[0] == "on"), settings);
  if (words.empty()) words = variables(call, *settings.ranks);
  std::string named;
  for (const std::string& word : words)
    named += fmt::format("{}__lockstep::named_memory({}, {})", named.empty() ? "" : ", ", cxx_string(word), word);
  return run_inspector(call, "__lockstep::memory({" + named + "})", settings, /*shows=*/true);
}

const RegisterMagic kMemory(
    {.name = "memory",
     .usage = kMemoryUsage,
     .summary = "what holds memory: tensors by name, allocators, peak per cell, growth per step",
     .help = "All variables of the session that hold tensors, or EXPR....\n"
             "on    counts LibTorch's allocations from here: peak and rest of each cell, growth "
             "per inspect::step\n"
             "off   ends that",
     .line = memory,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
