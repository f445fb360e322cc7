// The words behind a magic's name: cut at blanks outside (), [], {}, quotes, template arguments that are used, and
// between a lambda's brackets and its body; and options taken out of them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

class MagicArguments {
 public:
  /// Throws UsageError for a bracket or a quote that is not closed. `usage` is what errors show.
  MagicArguments(std::string_view text, std::string usage);

  /// Takes the option with its value (`-n 3`, `--last=3`); nothing where it is not given. Throws UsageError where the
  /// value is missing.
  std::optional<std::string> take_value(const std::string& short_name, const std::string& long_name);
  /// Takes an option without a value.
  bool take_flag(const std::string& short_name, const std::string& long_name);
  /// What is left: no word may look like an option then. Throws UsageError with the nearest option for one that does.
  std::vector<std::string> rest();
  /// As rest(), but at most one word.
  std::optional<std::string> rest_word();

 private:
  std::string usage_;
  std::vector<std::string> words_;
  std::vector<std::string> known_;
};

/// The words themselves. Quotes around a whole word are taken off.
std::vector<std::string> split_arguments(std::string_view text);

/// A whole number of at least `smallest`. Throws UsageError that names `what`.
int64_t parse_count(const std::string& word, const std::string& what, int64_t smallest = 1);

}  // namespace lockstep::shell
