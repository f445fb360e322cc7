// What a magic takes, described once: its usage, its help, completion, and the reading of its line by CLI11 come from the
// description. Words are cut at blanks outside (), [], {}, quotes, template arguments that are used, and between a
// lambda's brackets and its body.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::shell {

/// A word or an option.
struct MagicArgument {
  /// `form`: as usage shows it. A word is `SPEC`, `[SPEC]` where it may be left out, `EXPR...` where others may follow, a
  /// choice `on|off`, or `on|off|FILE`. An option is `--self`, or has a value: `--rtol R`, `-n,--last K`; `|--all` stands
  /// in place of the argument before it. Names of values are in capitals, and say to completion what they are (FILE,
  /// FOLDER, SPEC, EXPR, NAME, …).
  MagicArgument(const char* form, std::string help = "");  // NOLINT: a form alone is one, too

  std::vector<std::string> names;  // of an option; empty: a word
  std::string value;  // what the word, or the value of the option, is; empty: the option has none
  std::string help;
  bool is_required = false;
  bool is_repeated = false;
  bool excludes_previous = false;

  bool is_named(std::string_view name) const;
  /// `on|off|FILE`: its parts.
  std::vector<std::string> alternatives() const;
  std::string usage() const;
};
using MagicDescription = std::vector<MagicArgument>;

/// " [NAME... | --all]": behind the name of the magic.
std::string usage_of(const MagicDescription& description);
/// In a usage, what is in capitals stands for something; other words stand as they are.
bool is_placeholder(std::string_view value);

/// The option of that name; nullptr where there is none.
const MagicArgument* find_option(const MagicDescription& description, std::string_view name);
/// Returns what the next word is, behind the words `before`: the value of an option, or a word. nullptr: none is expected.
const MagicArgument* expected_after(const MagicDescription& description, const std::vector<std::string>& before);

/// The lines of help on its words and options; those without help are left out.
std::string help_of(const MagicDescription& description);

/// Holds what was typed, read by a description.
class MagicArguments {
 public:
  MagicArguments() = default;
  /// `usage` is that of the magic, with which errors end. Throws UsageError: brackets and quotes that are not closed,
  /// unknown options, with the nearest, values that are missing or are none of a choice, too few words and too many.
  MagicArguments(const MagicDescription& description, const std::string& usage, std::string_view text);

  // `option`: any of its names, as described.
  bool has(const std::string& option) const;
  std::optional<std::string> value(const std::string& option) const;
  /// A whole number of at least `smallest`. Throws UsageError.
  std::optional<int64_t> count(const std::string& option, int64_t smallest = 1) const;

  const std::vector<std::string>& words() const { return words_; }
  /// The first word.
  std::optional<std::string> word() const;

 private:
  std::shared_ptr<CLI::App> options_;
  std::vector<std::string> words_;
};

/// Returns the words themselves. Quotes around a whole word are taken off.
std::vector<std::string> split_arguments(std::string_view text);

/// Returns a whole number of at least `smallest`. Throws UsageError that names `what`.
int64_t parse_count(const std::string& word, const std::string& what, int64_t smallest = 1);

/// Reads a time of a second to a year: 90, 90s, 30m, 8h, 2d. Throws UsageError.
std::chrono::seconds parse_time(const std::string& word);

}  // namespace lockstep::shell
