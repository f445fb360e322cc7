#include "shell/session/completion.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>

#include "protocol/error.h"
#include "shell/scripts/code_scanner.h"
#include "shell/scripts/literals.h"
#include "shell/scripts/magic_parser.h"
#include "shell/scripts/python_cell.h"
#include "shell/session/python_questions.h"
#include "shell/session/session_core.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPaths = 500;
constexpr int kMostRanksListed = 64;

bool is_blank_character(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Is a cell as it is typed, up to the cursor.
struct Place {
  std::string code;  // the text with blanks in place of magics: as long as the text up to the cursor
  std::string_view line;  // from the beginning of the cursor's line to the cursor
  size_t line_begin = 0;
  bool at_statement = false;  // a statement, and therefore a magic, may begin with this line
  bool only_cell_magics = true;  // nothing but cell magics, blanks and comments comes before
  bool is_text = false;  // the body of a magic that takes text
  std::optional<size_t> string_begin;  // of the string that the cursor is in, behind its quote
};

const Magic* find_magic(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('%'), name.size()));
  for (const Magic* magic : MagicRegistry::instance().all())
    if (magic->name == name) return magic;
  return nullptr;
}

Place place_of(std::string_view text) {
  Place place;
  place.code = text;
  const size_t last = text.rfind('\n');
  place.line_begin = last == std::string_view::npos ? 0 : last + 1;
  place.line = text.substr(place.line_begin);
  CodeScanner scanner(text);
  for (size_t begin = 0; begin < place.line_begin;) {
    const size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    const std::string_view magic = scanner.may_begin(begin) ? magic_of(line) : std::string_view();
    if (!magic.empty()) {
      const Magic* known = find_magic(magic);
      if (magic.starts_with("%%") && known && known->takes_text) place.is_text = true;
      if (!magic.starts_with("%%")) place.only_cell_magics = false;
      std::fill_n(place.code.begin() + static_cast<ptrdiff_t>(begin), line.size(), ' ');
      scanner.skip_magic(end);
    }
    while (const auto token = scanner.next(end)) place.only_cell_magics &= token->kind == CppToken::comment;
    begin = end + 1;
  }
  place.at_statement = scanner.may_begin(place.line_begin);
  while (const auto token = scanner.next())
    if (token->kind == CppToken::string && !token->is_closed && token->end() == text.size())
      place.string_begin = token->begin + token->text.find('"') + 1;
  return place;
}

/// Returns where the word that the cursor is in begins: after the last blank outside brackets and quotes.
size_t word_begin(std::string_view text) {
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (const auto literal = literal_at(text, i)) {
      i = literal->end - 1;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (is_blank_character(c) && depth <= 0) {
      begin = i + 1;
    }
  }
  return begin;
}

/// Returns the language of a cell.
Language language_of(const SessionCore& session, std::string_view text) {
  return is_cpp_cell(text) ? Language::cpp : session.language();
}

class Completer {
 public:
  Completer(SessionCore& session, const std::string& text, size_t offset)
      : session_(session),
        offset_(offset),
        place_(place_of(std::string_view(text).substr(0, offset))),
        language_(language_of(session, text)) {
    answer_.begin = answer_.end = static_cast<int64_t>(offset);
  }

  protocol::Completions run() {
    if (place_.is_text) return answer_;
    const std::string_view line = place_.line;
    const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    const std::string_view rest = line.substr(first);
    if (place_.at_statement && rest.starts_with('%')) {
      const std::string_view name = magic_of(line);
      if (name.size() == rest.size())
        magics(name);
      else if (const Magic* magic = find_magic(name))
        arguments(*magic, name.starts_with("%%") ? MagicForm::cell : session_.line_form(), rest.substr(name.size()));
    } else if (place_.at_statement && rest.starts_with('!')) {
      paths(rest.substr(1), /*folders_only=*/false);
    } else if (place_.at_statement && rest.starts_with('?')) {
      const size_t sign = place_.line_begin + first;
      std::fill_n(place_.code.begin() + static_cast<ptrdiff_t>(sign),
                  std::min(rest.find_first_not_of('?'), rest.size()), ' ');
      code();
    } else if (place_.string_begin) {
      paths(std::string_view(place_.code).substr(*place_.string_begin), /*folders_only=*/false);
    } else {
      code();
    }
    return answer_;
  }

 private:
  void add(std::string text, const char* kind, std::string detail = "") {
    for (const protocol::Completion& each : answer_.completions)
      if (each.text == text) return;
    answer_.completions.push_back({std::move(text), kind, std::move(detail)});
  }

  void replace_last(size_t bytes) { answer_.begin = static_cast<int64_t>(offset_ - bytes); }

  void magics(std::string_view typed) {
    replace_last(typed.size());
    const auto all = MagicRegistry::instance().available(session_.kind());
    const std::string_view name = typed.substr(std::min(typed.find_first_not_of('%'), typed.size()));
    const auto offer = [&](const Magic& magic, const char* sign) {
      if (std::isalpha(static_cast<unsigned char>(magic.name.front())) && magic.name.starts_with(name))
        add(sign + magic.name, "magic", magic.summary);
    };
    if (!typed.starts_with("%%"))
      for (const Magic* magic : all)
        if (magic->line || (session_.line_form() == MagicForm::job_line && magic->job_line)) offer(*magic, "%");
    if (!place_.only_cell_magics) return;
    for (const Magic* magic : all)
      if (magic->cell) offer(*magic, "%%");
  }

  void arguments(const Magic& magic, MagicForm form, std::string_view typed) {
    language_ = magic.language.value_or(session_.language());
    const MagicDescription& takes = magic.takes_as(form);
    const size_t begin = word_begin(typed);
    const std::string_view word = typed.substr(begin);
    replace_last(word.size());
    if (const MagicArgument* option = find_option(takes, word.substr(0, word.find('=')));
        option && word.find('=') != std::string_view::npos)
      return values(*option, typed, begin + word.find('=') + 1);
    std::vector<std::string> before;
    try {
      before = split_arguments(typed.substr(0, begin));
    } catch (const UsageError&) {  // a bracket or a quote is still open
      return;
    }
    const MagicArgument* expected = expected_after(takes, before);
    if (word.starts_with('-') && (!expected || expected->names.empty())) {
      for (const MagicArgument& each : takes)
        for (const std::string& name : each.names)
          if (name.starts_with(word)) add(name, "option", each.help);
    } else if (expected) {
      values(*expected, typed, begin);
    }
  }

  /// Adds what the argument that begins at `typed[begin]` may be.
  void values(const MagicArgument& argument, std::string_view typed, size_t begin) {
    replace_last(typed.size() - begin);
    for (const std::string& each : argument.alternatives()) value(each, typed.substr(begin), begin, typed);
  }

  /// Adds what may stand for a word of a usage: itself, or what its placeholder means.
  void value(const std::string& expected, std::string_view word, size_t begin, std::string_view typed) {
    if (!is_placeholder(expected)) {
      if (expected.starts_with(word)) add(expected, "choice");
    } else if (expected == "SPEC") {
      rank_sets(word);
    } else if (expected == "FILE" || expected == "FOLDER" || expected == "HEADER") {
      paths(word, expected == "FOLDER");
    } else if (expected == "MAGIC") {
      for (const Magic* magic : MagicRegistry::instance().available(session_.kind()))
        if (std::isalpha(static_cast<unsigned char>(magic->name.front())) && magic->name.starts_with(word))
          add(magic->name, "magic", magic->summary);
    } else if (expected == "NAME") {
      names(word);
    } else if (expected == "EXPR" || expected == "CODE" || expected == "STEP" || expected == "STATE") {
      const size_t code_begin = place_.line.size() - (typed.size() - begin);
      std::fill_n(place_.code.begin() + static_cast<ptrdiff_t>(place_.line_begin), code_begin, ' ');
      code();
    }
  }

  /// Continues the list of ranks that `word` is.
  void rank_sets(std::string_view word) {
    if (!session_.started()) return;
    const size_t cut = word.find_last_of("[,^- ");
    const std::string_view part = cut == std::string_view::npos ? word : word.substr(cut + 1);
    replace_last(part.size());
    const bool is_list = cut != std::string_view::npos;
    const RankSet live = session_.live_ranks();
    const auto offer = [&](const std::string& text, const std::string& detail) {
      if (text.starts_with(part)) add(text, "ranks", detail);
    };
    if (!is_list) offer("all", session_.live_ranks().words());
    if (!is_list && session_.world_size() > 2) offer("0-" + std::to_string(session_.world_size() - 1), "every rank");
    for (const int rank : live)
      if (rank < kMostRanksListed) offer(std::to_string(rank), session_.describe_rank(rank).device);
  }

  void names(std::string_view word) {
    if (!session_.started() || language_ == Language::python) return;
    const auto response = session_.ask(protocol::ListNames{});
    if (const auto* list = std::get_if<protocol::Names>(&response))
      for (const protocol::Name& name : list->names)
        if (name.name.starts_with(word)) add(name.name, name.kind == "type" ? "type" : "variable", name.type);
  }

  /// Offers files and folders whose path begins with the last word of `typed`, seen from the session's directory.
  void paths(std::string_view typed, bool folders_only) {
    const size_t blank = typed.find_last_of(" \t");
    const std::string word(blank == std::string_view::npos ? typed : typed.substr(blank + 1));
    const size_t slash = word.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : word.substr(0, slash + 1);
    const std::string prefix = slash == std::string::npos ? word : word.substr(slash + 1);
    replace_last(word.size());
    fs::path base = session_.directory();
    if (const char* home = std::getenv("HOME"); home && folder.starts_with("~/"))
      base = fs::path(home) / folder.substr(2);
    else
      base /= folder;
    std::error_code error;
    std::vector<std::string> found;
    for (fs::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename();
      if (!name.starts_with(prefix) || (prefix.empty() && name.starts_with('.'))) continue;
      std::error_code unreadable;
      const bool is_folder = entry->is_directory(unreadable);
      if (folders_only && !is_folder) continue;
      found.push_back(folder + name + (is_folder ? "/" : ""));
      if (found.size() == kMostPaths) break;
    }
    std::sort(found.begin(), found.end());
    for (std::string& each : found) add(std::move(each), "path");
  }

  void code() {
    if (language_ == Language::python) {
      answer_ = python_completions(session_, place_.code, static_cast<int64_t>(offset_));
      return;
    }
    if (!session_.start_compiler()) return;
    const auto response =
        session_.ask(protocol::Complete{place_.code, static_cast<int64_t>(offset_), session_.target_ranks()});
    if (const auto* found = std::get_if<protocol::Completions>(&response)) answer_ = *found;
  }

  SessionCore& session_;
  const size_t offset_;
  Place place_;
  Language language_;  // of what the cursor is in
  protocol::Completions answer_;
};

size_t within(const std::string& text, int64_t offset) {
  return static_cast<size_t>(std::clamp<int64_t>(offset, 0, static_cast<int64_t>(text.size())));
}

}  // namespace

protocol::Completions complete_cell(SessionCore& session, const std::string& text, int64_t offset) {
  return Completer(session, text, within(text, offset)).run();
}

Completeness completeness_of_cell(SessionCore& session, const std::string& text) {
  return language_of(session, text) == Language::python ? python_completeness(session, text) : completeness(text);
}

std::vector<protocol::Signature> signatures_in_cell(SessionCore& session, const std::string& text, int64_t offset) {
  if (!session.has_compiler() || language_of(session, text) == Language::python) return {};
  const Place place = place_of(std::string_view(text).substr(0, within(text, offset)));
  if (place.is_text || (place.at_statement && !magic_of(place.line).empty())) return {};
  const auto response = session.ask(
      protocol::Complete{place.code, static_cast<int64_t>(place.code.size()), session.target_ranks(), true});
  const auto* found = std::get_if<protocol::Completions>(&response);
  return found ? found->signatures : std::vector<protocol::Signature>();
}

}  // namespace lockstep::shell
