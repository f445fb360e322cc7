#include "shell/jupyter/input_history.h"

#include <fnmatch.h>

#include <algorithm>
#include <limits>
#include <set>

#include "protocol/read_json.h"
#include "shell/jupyter/replies.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

constexpr int64_t kThisSession = 1;

}  // namespace

bool fits_pattern(const std::string& text, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

InputHistory::InputHistory(HistoryFile file) : file_(std::move(file)) {
  int64_t line = 0;
  for (std::string& code : file_.load())
    entries_.push_back({.session = 0, .line = ++line, .code = std::move(code), .output = {}});
}

void InputHistory::add(int64_t execution_count, const std::string& code, bool is_kept) {
  entries_.push_back({.session = kThisSession, .line = execution_count, .code = code, .output = {}});
  // A history that can't be written costs nothing but the history.
  if (is_kept && code.find_first_not_of(" \t\n") != std::string::npos) (void)file_.add(code);
}

void InputHistory::set_output(const std::string& text) {
  if (!entries_.empty()) entries_.back().output = text;
}

json InputHistory::answer(const json& request) const {
  const std::string kind = protocol::text_at(request, "hist_access_type", "tail");
  const bool with_output = flag_of(request, "output", false);
  std::vector<const Entry*> found;
  if (kind == "tail" || kind == "search") {
    const std::string pattern = kind == "search" ? protocol::text_at(request, "pattern", "*") : "*";
    const bool is_unique = kind == "search" && flag_of(request, "unique", false);
    const int64_t most = number_of(request, "n", std::numeric_limits<int64_t>::max());
    std::set<std::string_view> seen;
    for (auto entry = entries_.rbegin(); entry != entries_.rend() && std::ssize(found) < most; ++entry) {
      if (kind == "search" && !fits_pattern(entry->code, pattern)) continue;
      if (is_unique && !seen.insert(entry->code).second) continue;
      found.push_back(&*entry);
    }
    std::reverse(found.begin(), found.end());
  } else if (kind == "range") {
    int64_t session = number_of(request, "session", 0);
    if (session <= 0) session += kThisSession;  // as IPython counts: 0 is this one, -1 the one before
    const int64_t start = number_of(request, "start", 0);
    const int64_t stop = number_of(request, "stop", std::numeric_limits<int64_t>::max());
    for (const Entry& entry : entries_)
      if (entry.session == session && entry.line >= start && entry.line < stop) found.push_back(&entry);
  } else {
    return error_reply("ValueError", "history by '" + kind + "': there are tail, range and search");
  }
  json rows = json::array();
  for (const Entry* entry : found) {
    if (with_output)
      rows.push_back({entry->session, entry->line,
                      json::array({entry->code, entry->output.empty() ? json(nullptr) : json(entry->output)})});
    else
      rows.push_back({entry->session, entry->line, entry->code});
  }
  return {{"status", "ok"}, {"history", std::move(rows)}};
}

}  // namespace lockstep::shell::jupyter
