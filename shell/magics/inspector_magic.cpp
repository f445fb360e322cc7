#include "shell/magics/inspector_magic.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "protocol/error.h"

namespace lockstep::shell {

CellSettings inspector_settings(MagicCall& call, const std::optional<std::string>& spec) {
  CellSettings settings;
  settings.ranks = spec ? call.session.parse_ranks(*spec) : call.session.live_ranks();
  if (settings.ranks->empty()) {
    call.session.start();
    settings.ranks = call.session.live_ranks();
  }
  return settings;
}

CellOutcome run_inspector(MagicCall& call, const std::string& code, const CellSettings& settings, bool shows) {
  const CodeResult result = call.session.run_code(shows ? code : code + ";", settings, call.line);
  return {.status = result.status, .findings = {}};
}

// JSON's escapes are C++'s, too.
std::string cxx_string(const std::string& text) { return nlohmann::json(text).dump(); }

std::string cxx_ranks(const RankSet& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "__lockstep::RankSet{" + text + "}";
}

std::string cxx_number(const std::string& word, const char* option, double least, const char* what) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value) || value < least)
    throw UsageError(fmt::format("{} takes {}, not '{}'", option, what, word));
  return fmt::format("{:e}", value);
}

}  // namespace lockstep::shell
