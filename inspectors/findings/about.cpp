#include "inspectors/findings/about.h"

#include <fmt/format.h>

namespace lockstep::inspect {

std::string About::words(const RankSet& some) const {
  constexpr size_t kNamed = 4;
  if (names.empty()) return some.words();
  std::string text;
  size_t done = 0;
  for (const int rank : some) {
    const size_t left = some.size() - done;
    if (done + 1 >= kNamed && left > 1) return fmt::format("{} and {} more", text, left);
    text += done == 0 ? "" : left == 1 ? " and " : ", ";
    text += static_cast<size_t>(rank) < names.size() ? names[static_cast<size_t>(rank)] : RankSet{rank}.words();
    ++done;
  }
  return text.empty() ? some.words() : text;
}

}  // namespace lockstep::inspect
