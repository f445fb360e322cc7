#include "shell/magics/inspectors/inspector_magic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

std::string option_name(const InspectorOption& option) {
  std::string name = "--" + std::string(option.name);
  std::ranges::replace(name, '_', '-');
  return name;
}

bool is_number(const InspectorOption& option) {
  return option.type.find("int") != std::string_view::npos || option.type.find("double") != std::string_view::npos;
}

/// The number that was given, which both languages spell alike.
std::string number_text(const InspectorOption& option, const std::string& word) {
  const double bound = std::strtod(std::string(option.range.substr(option.range.find(' '))).c_str(), nullptr);
  if (option.type.find("int") != std::string_view::npos)
    return std::to_string(parse_count(word, option_name(option), static_cast<int64_t>(bound)));
  const bool takes_bound = option.range.starts_with(">=");
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value) || value < bound || (value == bound && !takes_bound))
    throw UsageError(fmt::format("{} takes a number {} {}, not '{}'", option_name(option),
                                 takes_bound ? "of at least" : "above", bound, word));
  return fmt::format("{}", value);
}

/// `__lockstep::Method::kAllGather` of "all_gather"
std::string cxx_enumerator(std::string_view type, std::string_view word) {
  std::string text = fmt::format("__lockstep::{}::k", type);
  bool begins = true;
  for (const char c : word) {
    if (c != '_') text += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = c == '_';
  }
  return text;
}

/// Calls `add` with the row of each option that was given, and its value; a flag has none.
template <typename Add>
void for_each_given(const MagicArguments& given, InspectorOptions options, const Add& add) {
  for (const InspectorOption& each : options)
    if (given.has(option_name(each))) add(each, given.value(option_name(each)).value_or(""));
}

}  // namespace

MagicDescription with_options(MagicDescription words, InspectorOptions options) {
  for (const InspectorOption& each : options) {
    std::string help(each.help), initial(each.initial);
    std::erase(initial, '\'');  // between digits
    if (is_number(each) && initial != "std::nullopt") help += (help.empty() ? "(" : " (") + initial + ")";
    const std::string form = fmt::format("{}{}{}", option_name(each), each.value.empty() ? "" : " ", each.value);
    words.emplace_back(form.c_str(), help);
  }
  return words;
}

MagicDescription with_options_and_ranks(MagicDescription words, InspectorOptions options) {
  words = with_options(std::move(words), options);
  words.emplace_back("--ranks SPEC", "these ranks only");
  return words;
}

std::string cxx_options(const MagicArguments& given, InspectorOptions options) {
  std::string text;
  for_each_given(given, options, [&](const InspectorOption& option, const std::string& word) {
    const std::string value = option.value.empty() ? "true"
                              : is_number(option)  ? number_text(option, word)
                                                   : cxx_enumerator(option.type, word);
    text += fmt::format(".{}({})", option.name, value);
  });
  return text;
}

std::string python_options(const MagicArguments& given, InspectorOptions options) {
  std::string text;
  for_each_given(given, options, [&](const InspectorOption& option, const std::string& word) {
    const std::string value = option.value.empty() ? "True"
                              : is_number(option)  ? number_text(option, word)
                                                   : quoted(word);
    text += fmt::format(", {}={}", option.name, value);
  });
  return text;
}

std::string cxx_ranks_option(const MagicArguments& given, const CellSettings& settings) {
  return given.has("--ranks") ? ".ranks(" + cxx_ranks(*settings.ranks) + ")" : "";
}

CellSettings inspector_settings(MagicCall& call, const std::optional<std::string>& spec) {
  CellSettings settings;
  settings.ranks = spec ? call.session.parse_ranks(*spec) : call.session.cell_ranks();
  if (settings.ranks->empty()) {
    call.session.start();
    settings.ranks = call.session.cell_ranks();
  }
  return settings;
}

CellOutcome run_inspector(MagicCall& call, const std::string& code, const CellSettings& settings, bool shows) {
  const CodeResult result = call.session.run_code(shows ? code : code + ";", settings, call.line);
  return {.status = result.status, .findings = {}};
}

// JSON's escapes are those of both languages.
std::string path_of_ranks(const SessionCore& session, const std::string& word) {
  namespace fs = std::filesystem;
  const char* home = std::getenv("HOME");
  fs::path path = word;
  if (home && (word == "~" || word.starts_with("~/"))) path = fs::path(home) / word.substr(word.size() > 1 ? 2 : 1);
  const fs::path now = session.directory().empty() ? fs::current_path() : fs::path(session.directory());
  path = (now / path).lexically_normal();
  return path.has_filename() ? path.string() : path.parent_path().string();
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string cxx_ranks(const RankSet& ranks) {
  return fmt::format("__lockstep::RankSet{{{}}}", fmt::join(ranks.ranks(), ", "));
}

}  // namespace lockstep::shell
