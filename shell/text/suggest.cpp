#include "shell/text/suggest.h"

#include <algorithm>
#include <cctype>

namespace lockstep::shell {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), text.begin(),
                                                       [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // These are three rows of the table of optimal string alignment: two back (for swaps), the previous, the current.
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (!best || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best && best_distance <= std::max<size_t>(1, name.size() / 3)) return *best;
  if (name.size() >= 3)
    for (const std::string& candidate : candidates)
      if (begins_with(candidate, name) || (candidate.size() >= 3 && begins_with(name, candidate))) return candidate;
  return std::nullopt;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates, std::string_view prefix) {
  const std::optional<std::string> candidate = nearest(name, candidates);
  return candidate ? "; did you mean " + std::string(prefix) + *candidate + "?" : "";
}

}  // namespace lockstep::shell
