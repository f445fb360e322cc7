// %memory shows what holds memory on each rank, by the names of the session.
#include <fmt/format.h>

#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/job_magic.h"
#include "shell/session/out_of_memory.h"

namespace lockstep::shell {
namespace {

CellOutcome memory(MagicCall& call) {
  std::vector<std::string> words = call.given.words();
  const CellSettings settings = inspector_settings(call);
  if (words.size() == 1 && (words[0] == "on" || words[0] == "off"))
    return run_inspector(call, fmt::format("__lockstep::set_memory_watch({})", words[0] == "on"), settings);
  if (words.empty()) words = variables_of(call.session, *settings.ranks);
  return run_inspector(call, "__lockstep::memory({" + named_memory_arguments(words) + "})", settings, /*shows=*/true);
}

const RegisterMagic kMemory(
    {.name = "memory",
     .summary = "what holds memory: tensors by name, devices, allocators, peak per cell, growth per step",
     .help = "All variables of the session that hold tensors, or EXPR....\n"
             "On GPUs also what LibTorch's allocator has reserved, and what other programs use; notes name ranks that "
             "hold more than\nothers, memory that is free in split blocks, and other programs.\n"
             "on   counts LibTorch's allocations from here: peak and rest of each cell, growth per inspect::step\n"
             "off  ends that",
     .takes = {"[on|off|EXPR...]"},
     .line = memory,
     .job_line = memory_of_job,
     .job_takes = MagicDescription{"[EXPR...]"}});

}  // namespace
}  // namespace lockstep::shell
