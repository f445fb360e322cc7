#include "shell/magics/inspector_call.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "protocol/error.h"

namespace lockstep::shell {

// JSON's escapes are C++'s, too.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string list_of(const RankSet& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "lockstep::RankSet{" + text + "}";
}

std::string number_of(const std::string& word, const char* option, double least, const char* what) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value) || value < least)
    throw UsageError(fmt::format("{} takes {}, not '{}'", option, what, word));
  return fmt::format("{:e}", value);
}

RankSet ranks_for(Session::Impl& session, const std::optional<std::string>& spec) {
  RankSet ranks = spec ? session.parse_ranks(*spec) : session.live_ranks();
  if (!ranks.empty()) return ranks;
  session.start();
  return session.live_ranks();
}

}  // namespace lockstep::shell
