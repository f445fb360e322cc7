#include "python/operators/call_sites.h"

#include <fmt/format.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "collectives/log/collective_record.h"
#include "inspectors/trace/call_site.h"

namespace lockstep::python {
namespace {

struct Sites {
  std::mutex mutex;
  std::vector<std::string> skipped;
  std::string folder;
  std::vector<std::string> texts;  // a call site is the number of its text, from 1
  std::unordered_map<std::string, uintptr_t> numbers;
};

// Never destroyed: threads of autograd may outlive it.
Sites& sites() {
  static auto* all = new Sites;
  return *all;
}

bool is_of_users(const Sites& all, const std::string& file) {
  return (!file.starts_with('<') || dist::is_cell(file)) &&
         std::ranges::none_of(all.skipped, [&](const std::string& folder) { return file.starts_with(folder); });
}

inspect::CallSite capture() {
  const auto trace = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  const torch::SymbolizedTracebacks symbolized = torch::symbolize({trace.get()});
  Sites& all = sites();
  const std::lock_guard lock(all.mutex);
  inspect::CallSite site;
  for (const uint64_t index : symbolized.tracebacks.at(0)) {
    const auto& frame = symbolized.all_frames.at(index);
    if (!is_of_users(all, frame.filename)) continue;
    const bool inside = frame.filename.starts_with(all.folder);
    const dist::CallPlace place{.file = inside ? frame.filename.substr(all.folder.size()) : frame.filename,
                                .line = static_cast<int64_t>(frame.lineno),
                                .function = {}};
    std::string text = place.line_str();
    const auto [number, fresh] = all.numbers.try_emplace(text, all.texts.size() + 1);
    if (fresh) all.texts.push_back(std::move(text));
    site.addresses[0] = number->second;
    break;
  }
  return site;
}

std::string describe(const inspect::CallSite& site) {
  Sites& all = sites();
  const std::lock_guard lock(all.mutex);
  const uintptr_t number = site.addresses[0];
  return number <= all.texts.size() ? all.texts[number - 1] : std::string();
}

}  // namespace

bool is_users(const std::string& file) {
  Sites& all = sites();
  const std::lock_guard lock(all.mutex);
  return is_of_users(all, file);
}

void use_python_call_sites(std::vector<std::string> skipped, std::string folder) {
  Sites& all = sites();
  {
    const std::lock_guard lock(all.mutex);
    all.skipped = std::move(skipped);
    all.folder = std::move(folder);
  }
  inspect::set_call_sites({.capture = capture, .describe = describe});
}

}  // namespace lockstep::python
