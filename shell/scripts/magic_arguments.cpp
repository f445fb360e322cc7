#include "shell/scripts/magic_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "protocol/error.h"
#include "protocol/whole_number.h"
#include "shell/scripts/literals.h"
#include "shell/text/suggest.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Returns the place behind the brackets that a lambda begins with, as `word` has it so far; npos where it begins with
/// none. A set of ranks, `[0, 2-4]`, names nothing.
size_t behind_captures(std::string_view word) {
  if (!word.starts_with('[')) return std::string_view::npos;
  int depth = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '[') ++depth;
    if (word[i] == ']' && --depth == 0) {
      const bool captures = i == 1 || word[1] == '&' || word[1] == '=' || word[1] == '*' ||
                            (is_name_character(word[1]) && !std::isdigit(static_cast<unsigned char>(word[1])));
      return captures ? i + 1 : std::string_view::npos;
    }
  }
  return std::string_view::npos;
}

/// Whether `word` is a lambda whose body is still to come, and `rest` goes on with it: `[&](bool sync) mutable -> int
/// {…}`.
bool goes_on_with_lambda(std::string_view word, std::string_view rest) {
  const size_t behind = behind_captures(word);
  if (behind == std::string_view::npos || word.find('{', behind) != std::string_view::npos) return false;
  if (word.find("->", behind) != std::string_view::npos) return rest.find('{') != std::string_view::npos;
  for (const std::string_view next : {"(", "{", "<", "->"})
    if (rest.starts_with(next)) return true;
  for (const std::string_view next : {"mutable", "noexcept", "constexpr", "consteval", "static", "requires"})
    if (rest.starts_with(next) && (rest.size() == next.size() || !is_name_character(rest[next.size()]))) return true;
  return false;
}

/// Returns the place behind the `>` of template arguments that begin at `text[at]`, a `<`, where a call, a brace or a
/// scope follows. npos for what may be a comparison.
size_t behind_template_arguments(std::string_view text, size_t at) {
  if (at == 0 || !(is_name_character(text[at - 1]) || text[at - 1] == ']')) return std::string_view::npos;
  int depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '<') ++depth;
    if (c == '>' && --depth == 0) {
      const std::string_view rest = text.substr(i + 1);
      const bool used = rest.starts_with("(") || rest.starts_with("{") || rest.starts_with("::");
      return used ? i + 1 : std::string_view::npos;
    }
    if (!is_name_character(c) && std::string_view("<>:,*& .").find(c) == std::string_view::npos) break;
  }
  return std::string_view::npos;
}

/// A number below zero is none.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1]));
}

std::vector<const MagicArgument*> words_of(const MagicDescription& description) {
  std::vector<const MagicArgument*> words;
  for (const MagicArgument& each : description)
    if (each.names.empty()) words.push_back(&each);
  return words;
}

const MagicArgument* word_at(const std::vector<const MagicArgument*>& words, size_t i) {
  if (i < words.size()) return words[i];
  return !words.empty() && words.back()->is_repeated ? words.back() : nullptr;
}

std::string name_of(const MagicArgument& argument) {
  return argument.names.empty() ? argument.value : argument.names[0];
}

/// "on, off or FILE"
std::string one_of(const std::vector<std::string>& choices) {
  const std::string before = fmt::format("{}", fmt::join(choices.begin(), choices.end() - 1, ", "));
  return before + (before.empty() ? "" : " or ") + choices.back();
}

}  // namespace

std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> words;
  std::string word, closing;
  bool in_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (const auto literal = literal_at(text, i)) {
      if (!literal->is_closed)
        throw UsageError(std::string("the quote ") + c + " in '" + std::string(text) + "' is not closed");
      word += text.substr(i, literal->end - i);
      i = literal->end - 1;
      in_word = true;
      continue;
    }
    if ((c == ' ' || c == '\t' || c == '\n' || c == '\r') && closing.empty()) {
      const size_t next = text.find_first_not_of(" \t\n\r", i);
      if (in_word && next != std::string_view::npos && goes_on_with_lambda(word, text.substr(next))) {
        word += text.substr(i, next - i);
        i = next - 1;
        continue;
      }
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      continue;
    }
    in_word = true;
    if (const size_t end = c == '<' ? behind_template_arguments(text, i) : std::string_view::npos;
        end != std::string_view::npos) {
      word += text.substr(i, end - i);
      i = end - 1;
      continue;
    }
    word += c;
    if (c == '(')
      closing += ')';
    else if (c == '[')
      closing += ']';
    else if (c == '{')
      closing += '}';
    else if (!closing.empty() && c == closing.back())
      closing.pop_back();
  }
  if (!closing.empty())
    throw UsageError(std::string("'") + closing.back() + "' is missing in '" + std::string(text) + "'");
  if (in_word) words.push_back(std::move(word));
  for (std::string& each : words)
    if (each.size() >= 2 && (each.front() == '"' || each.front() == '\'') && each.back() == each.front())
      each = each.substr(1, each.size() - 2);
  return words;
}

int64_t parse_count(const std::string& word, const std::string& what, int64_t smallest) {
  if (const auto value = protocol::whole_number(word, smallest)) return *value;
  throw UsageError(what + " is a whole number of at least " + std::to_string(smallest) + ", not '" + word + "'");
}

std::chrono::seconds parse_time(const std::string& word) {
  constexpr int64_t kYear = 365 * 24 * 3600;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string_view unit(end, static_cast<size_t>(word.data() + word.size() - end));
  const int64_t factor = unit.empty() || unit == "s" ? 1
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                         : unit == "d"               ? 24 * 3600
                                                     : 0;
  if (error != std::errc() || factor == 0 || value < 1 || value > kYear / factor)
    throw UsageError("'" + word + "' is no time: write 90s, 30m, 8h or 2d, up to a year");
  return std::chrono::seconds(value * factor);
}

MagicArgument::MagicArgument(const char* text, std::string help) : help(std::move(help)) {
  std::string_view form = text;
  excludes_previous = form.starts_with('|');
  if (excludes_previous) form.remove_prefix(1);
  if (form.starts_with('-')) {
    const size_t end = std::min(form.find(' '), form.size());
    value = form.substr(std::min(end + 1, form.size()));
    for (size_t begin = 0; begin < end;) {
      const size_t comma = std::min(form.find(',', begin), end);
      names.emplace_back(form.substr(begin, comma - begin));
      begin = comma + 1;
    }
    return;
  }
  is_required = !form.starts_with('[');
  if (!is_required) form = form.substr(1, form.size() - 2);
  is_repeated = form.ends_with("...");
  if (is_repeated) form.remove_suffix(3);
  value = form;
}

bool MagicArgument::is_named(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }

std::vector<std::string> MagicArgument::alternatives() const {
  std::vector<std::string> parts(1);
  for (const char c : value) {
    if (c == '|')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string MagicArgument::usage() const {
  std::string text = names.empty() ? value : names[0] + (value.empty() ? "" : " " + value);
  if (is_repeated) text += "...";
  return is_required ? text : "[" + text + "]";
}

std::string usage_of(const MagicDescription& description) {
  std::string text;
  for (const MagicArgument& each : description) {
    if (each.excludes_previous) text.back() = ' ';
    text += each.excludes_previous ? "| " + each.usage().substr(1) : " " + each.usage();
  }
  return text;
}

bool is_placeholder(std::string_view value) {
  return std::ranges::none_of(value, [](unsigned char c) { return std::islower(c) != 0; });
}

const MagicArgument* find_option(const MagicDescription& description, std::string_view name) {
  const auto found = std::ranges::find_if(description, [&](const auto& each) { return each.is_named(name); });
  return found == description.end() ? nullptr : &*found;
}

const MagicArgument* expected_after(const MagicDescription& description, const std::vector<std::string>& before) {
  const MagicArgument* option = nullptr;
  size_t words = 0;
  for (const std::string& each : before) {
    const bool is_value = option != nullptr;
    option = is_value ? nullptr : find_option(description, each);
    if (option && option->value.empty()) option = nullptr;
    if (!is_value && !looks_like_option(each)) ++words;
  }
  const auto expected = words_of(description);
  return option || expected.empty() ? option : expected[std::min(words, expected.size() - 1)];
}

std::string help_of(const MagicDescription& description) {
  constexpr int kColumns = 110;
  const auto head = [](const MagicArgument& each) {
    return fmt::format("{}", fmt::join(each.names, ", ")) + (each.names.empty() || each.value.empty() ? "" : " ") +
           each.value;
  };
  size_t width = 0;
  for (const MagicArgument& each : description)
    if (!each.help.empty() && head(each).size() < kColumns / 3) width = std::max(width, head(each).size() + 2);
  std::string text;
  for (const MagicArgument& each : description) {
    if (each.help.empty()) continue;
    const std::string name = head(each);
    std::string lines;
    for (const std::string& line : wrapped(std::string(width, ' ') + each.help, kColumns)) lines += line + "\n";
    // A long name has a line of its own.
    text += name.size() + 2 > width ? name + "\n" + lines : name + lines.substr(name.size());
  }
  return text;
}

MagicArguments::MagicArguments(const MagicDescription& description, const std::string& usage, std::string_view text)
    : options_(std::make_shared<CLI::App>()) {
  const auto refuse = [&](const std::string& problem) { throw UsageError(problem + "; usage: " + usage); };
  options_->set_help_flag();
  options_->allow_extras();
  std::vector<std::string> known;
  for (const MagicArgument& each : description) {
    if (each.names.empty()) continue;
    const std::string names = fmt::format("{}", fmt::join(each.names, ","));
    if (each.value.empty())
      options_->add_flag(names)->disable_flag_override();
    else
      options_->add_option(names);
    known.insert(known.end(), each.names.begin(), each.names.end());
  }
  std::vector<std::string> words = split_arguments(text);
  for (const std::string& word : words) {
    const MagicArgument* option =
        word.ends_with('=') ? find_option(description, word.substr(0, word.size() - 1)) : nullptr;
    if (option && !option->value.empty()) refuse(option->names[0] + " needs a value, " + option->value);
  }
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    options_->parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what(), name = what.substr(0, what.find(':'));
    const CLI::Option* option = options_->get_option_no_throw(name);
    if (!option) refuse("--" + what.substr(0, what.find(' ')) + " takes no value");  // CLI11 says "force was given …"
    if (option->count() > 0) refuse(name + " is given twice");
    refuse(name + " needs a value, " + find_option(description, name)->value);
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
  words_ = options_->remaining();
  for (const std::string& word : words_)
    if (looks_like_option(word)) refuse("unknown option " + word + did_you_mean(word.substr(0, word.find('=')), known));

  const std::string name = usage.substr(0, usage.find(' '));
  const auto refuse_other = [&](const MagicArgument& meant, const std::string& taker, const std::string& given) {
    const std::vector<std::string> choices = meant.alternatives();
    if (std::ranges::any_of(choices, is_placeholder) || std::ranges::find(choices, given) != choices.end()) return;
    refuse(fmt::format("{} takes {}, not '{}'{}", taker, one_of(choices), given, did_you_mean(given, choices)));
  };
  for (const MagicArgument& each : description)
    if (!each.names.empty() && !each.value.empty())
      if (const auto given = value(each.names[0])) refuse_other(each, each.names[0], *given);
  const auto is_given = [&](const MagicArgument& each) {
    return each.names.empty() ? !words_.empty() : has(each.names[0]);
  };
  for (size_t i = 1; i < description.size(); ++i)
    if (description[i].excludes_previous && is_given(description[i]) && is_given(description[i - 1]))
      refuse(fmt::format("{} takes {} or {}, not both", name, name_of(description[i - 1]), name_of(description[i])));
  const auto expected = words_of(description);
  const char* const hint = name.starts_with("%%") ? "; code stands in the lines below" : "";
  for (size_t i = 0; i < words_.size(); ++i) {
    const MagicArgument* meant = word_at(expected, i);
    if (expected.empty()) refuse(fmt::format("{} takes no words: leave out '{}'{}", name, words_[i], hint));
    if (!meant) refuse("'" + words_[i] + "' is one word too many" + hint);
    refuse_other(*meant, name, words_[i]);
  }
  if (words_.size() < expected.size() && expected[words_.size()]->is_required) {
    const MagicArgument& missing = *expected[words_.size()];
    refuse(fmt::format("{} needs {}{}{}", name,
                       is_placeholder(missing.value) ? missing.value : one_of(missing.alternatives()),
                       missing.help.empty() ? "" : ", ", missing.help));
  }
}

bool MagicArguments::has(const std::string& option) const { return options_->count(option) > 0; }

std::optional<std::string> MagicArguments::value(const std::string& option) const {
  return has(option) ? std::optional(options_->get_option(option)->results().front()) : std::nullopt;
}

std::optional<int64_t> MagicArguments::count(const std::string& option, int64_t smallest) const {
  const auto given = value(option);
  return given ? std::optional(parse_count(*given, option, smallest)) : std::nullopt;
}

std::optional<std::string> MagicArguments::word() const {
  return words_.empty() ? std::nullopt : std::optional(words_.front());
}

}  // namespace lockstep::shell
