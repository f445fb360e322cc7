#include "shell/scripts/magic_arguments.h"

#include <algorithm>
#include <charconv>

#include "protocol/error.h"
#include "shell/scripts/literals.h"
#include "shell/text/suggest.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Behind the brackets that a lambda begins with, as `word` has it so far; npos where it begins with none. A set of
/// ranks, `[0, 2-4]`, names nothing.
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

/// Of template arguments that begin at `text[at]`, a `<`: behind their `>`, where a call, a brace or a scope follows.
/// npos for what may be a comparison.
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
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < smallest)
    throw UsageError(what + " is a whole number of at least " + std::to_string(smallest) + ", not '" + word + "'");
  return value;
}

MagicArguments::MagicArguments(std::string_view text, std::string usage)
    : usage_(std::move(usage)), words_(split_arguments(text)) {}

std::optional<std::string> MagicArguments::take_value(const std::string& short_name, const std::string& long_name) {
  for (const std::string& name : {short_name, long_name}) {
    if (name.empty()) continue;
    known_.push_back(name);
    for (auto word = words_.begin(); word != words_.end(); ++word) {
      const bool joined = name.starts_with("--") && word->starts_with(name + "=");
      if (!joined && *word != name) continue;
      std::string value;
      if (joined) {
        value = word->substr(name.size() + 1);
        words_.erase(word);
      } else {
        if (word + 1 == words_.end()) throw UsageError(name + " needs a value; usage: " + usage_);
        value = *(word + 1);
        words_.erase(word, word + 2);
      }
      return value;
    }
  }
  return std::nullopt;
}

bool MagicArguments::take_flag(const std::string& short_name, const std::string& long_name) {
  bool given = false;
  for (const std::string& name : {short_name, long_name}) {
    if (name.empty()) continue;
    known_.push_back(name);
    given = std::erase(words_, name) > 0 || given;
  }
  return given;
}

std::vector<std::string> MagicArguments::rest() {
  for (const std::string& word : words_)
    if (word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])))
      throw UsageError("unknown option " + word + did_you_mean(word, known_) + "; usage: " + usage_);
  return words_;
}

std::optional<std::string> MagicArguments::rest_word() {
  const std::vector<std::string> words = rest();
  if (words.size() > 1) throw UsageError("'" + words[1] + "' is one word too many; usage: " + usage_);
  return words.empty() ? std::nullopt : std::optional(words.front());
}

}  // namespace lockstep::shell
