#include "shell/cells/past_items.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

using Steps = std::vector<protocol::Step>;
using Tokens = std::vector<CppToken>;

/// Whether the word `i` is a variable that is declared there, as far as its neighbours show.
bool is_declared(const Tokens& tokens, size_t first, size_t i) {
  if (i == first) return false;
  const CppToken& before = tokens[i - 1];
  if (is_any_of(before.text, {"&", "*"})) return i >= first + 2 && tokens[i - 2].text == "auto";
  return before.is_word() &&
         !is_any_of(before.text,
                    {"return",    "else",     "throw",     "new",    "delete",   "case",         "goto",
                     "co_return", "co_yield", "co_await",  "not",    "and",      "or",           "do",
                     "struct",    "class",    "enum",      "union",  "typename", "using",        "namespace",
                     "const",     "volatile", "constexpr", "static", "inline",   "thread_local", "operator"});
}

/// Returns the names of the parameters of a function, whose list opens at `open`.
std::set<std::string> parameters_at(const Tokens& tokens, size_t open, size_t last) {
  std::set<std::string> names;
  int depth = 0;
  for (size_t i = open; i < last; ++i) {
    if (is_any_of(tokens[i].text, {"(", "[", "{"})) ++depth;
    if (is_any_of(tokens[i].text, {")", "]", "}"}) && --depth == 0) break;
    const bool ends = i + 1 < last && is_any_of(tokens[i + 1].text, {",", ")", "="});
    const bool has_type = is_any_of(tokens[i - 1].text, {"&", "*", ">"}) || is_declared(tokens, open, i);
    if (depth == 1 && tokens[i].is_word() && ends && has_type) names.insert(tokens[i].spelling());
  }
  return names;
}

/// Returns the words of tokens [first, last) that may be names from outside of them.
std::multiset<std::string> words_of(const Tokens& tokens, size_t first, size_t last, std::set<std::string> parameters) {
  std::multiset<std::string> words;
  std::map<std::string, size_t> locals;  // and how many brackets are open where they are declared
  std::string open;
  for (size_t i = first; i < last; ++i) {
    const std::string_view text = tokens[i].text;
    if (is_any_of(text, {"(", "[", "{"})) open += text;
    if (is_any_of(text, {")", "]", "}"}) && !open.empty()) {
      open.pop_back();
      std::erase_if(locals, [&](const auto& local) { return local.second > open.size(); });
    }
    const std::string_view before = i > first ? tokens[i - 1].text : std::string_view();
    if (!tokens[i].is_word() || is_any_of(before, {".", "->"})) continue;
    const std::string word = tokens[i].spelling();
    const bool is_own = locals.contains(word) || parameters.contains(word);
    if (open.ends_with('{') && is_declared(tokens, first, i))
      locals.emplace(word, open.size());
    else if (!is_own || before == "::")
      words.insert(word);
  }
  return words;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    Tokens directive;
    CppLexer lexer(text);
    while (const auto token = lexer.next()) {
      if (token->kind == CppToken::hash) add_directive(std::exchange(directive, {}));
      if (token->kind != CppToken::comment) (token->in_directive ? directive : tokens_).push_back(*token);
    }
    add_directive(directive);
    add_items(0, tokens_.size(), "", items_);
    std::ranges::stable_sort(items_, {}, &PastItem::first_line);
  }

  std::vector<PastItem> take() { return std::move(items_); }

 private:
  std::string_view text(size_t i) const { return tokens_[i].text; }

  PastItem item_of(const Tokens& tokens, size_t first, size_t last,
                   const std::set<std::string>& parameters = {}) const {
    PastItem item;
    const size_t begin = tokens[first].begin;
    item.first_line = 1 + static_cast<int>(std::ranges::count(text_.substr(0, begin), '\n'));
    item.code = std::string(text_.substr(begin, tokens[last - 1].end() - begin));
    item.words = words_of(tokens, first, last, parameters);
    return item;
  }

  void add_directive(const Tokens& tokens) {
    if (tokens.size() < 3 || tokens[1].text != "define") return;
    items_.push_back(item_of(tokens, 0, tokens.size()));
    items_.back().names.push_back({tokens[2].spelling(), std::nullopt});
  }

  /// Adds the items of tokens [first, last), which are in the namespace `space`.
  void add_items(size_t first, size_t last, const std::string& space, std::vector<PastItem>& result) const {
    CppItems items(tokens_, first, last);
    while (const auto item = items.next()) {
      if (item->begin == item->end) break;
      if (text(item->begin) == ";") continue;  // no step is made of it
      PastItem& next = result.emplace_back(item_of(tokens_, item->begin, item->end, parameters_of(*item)));
      next.is_statement = !item->declares;
      const size_t at = item->begin;
      if (next.is_statement && at + 2 < item->end && text(at + 1) == "=" && text(at + 2) != "=")
        next.assigned = tokens_[at].spelling();
      if (item->block) {
        add_items(item->block->begin, item->block->end, space + item->block->space, next.inner);
        next.has_many = true;
        for (const PastItem& each : next.inner)
          next.names.insert(next.names.end(), each.names.begin(), each.names.end());
        continue;
      }
      next.names = item->names;
      next.adds = !item->adds_to.empty() || is_prototype(*item);
      if (!item->adds_to.empty()) next.names = {{item->adds_to, std::nullopt}};
      next.is_unnamed =
          item->declares && next.names.empty() && !is_any_of(text(item->begin), {"using", "static_assert", "asm"});
      for (DefinedName& each : next.names) each.name = space + each.name;
    }
  }

  std::set<std::string> parameters_of(const CppItem& item) const {
    for (size_t i = item.begin; i + 1 < item.end && item.names.size() == 1 && item.names[0].parameters; ++i)
      if (text(i) == item.names[0].name && text(i + 1) == "(") return parameters_at(tokens_, i + 1, item.end);
    return {};
  }

  /// Whether it declares something that is defined elsewhere. So does a variable with its value in round brackets, as
  /// far as can be seen: this has a step, or a constant.
  bool is_prototype(const CppItem& item) const {
    if (item.names.empty() || text(item.end - 1) != ";") return false;
    if (text(item.begin) == "extern" || item.names[0].name.starts_with("operator")) return true;
    for (size_t i = item.begin; i + 1 < item.end; ++i)
      if (text(i) == item.names[0].name && text(i + 1) == "(") return text(item.end - 2) == ")";
    return false;
  }

  const std::string_view text_;
  Tokens tokens_;  // without directives and comments
  std::vector<PastItem> items_;
};

/// Gives items [first, last), which begin on one line, the steps [begin, end), which are theirs. Returns whether they fit:
/// each statement has one, a declaration those up to the one that defines one of its names.
bool share(std::vector<PastItem>& items, size_t first, size_t last, const Steps& steps, size_t begin, size_t end) {
  size_t step = begin;
  for (size_t i = first; i < last; ++i) {
    PastItem& item = items[i];
    size_t behind = item.is_statement ? step + 1 : step;
    for (size_t k = step; k < end && behind == step; ++k)
      if (std::ranges::any_of(steps[k].names, [&](const std::string& name) { return has_name(item, name); }))
        behind = k + 1;
    if (behind > end) return false;
    while (step < behind) item.steps.push_back(step++);
  }
  return step == end;
}

/// Makes one item of items [first, last).
void merge(std::vector<PastItem>& items, size_t first, size_t last) {
  PastItem& all = items[first];
  for (size_t i = first + 1; i < last; ++i) {
    all.code += " " + items[i].code;
    all.words.merge(items[i].words);
    all.names.insert(all.names.end(), items[i].names.begin(), items[i].names.end());
    all.has_many = true;
    all.inner.clear();
    all.adds |= items[i].adds;
    all.is_unnamed |= items[i].is_unnamed;
  }
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(first) + 1,
              items.begin() + static_cast<std::ptrdiff_t>(last));
}

void give_steps(std::vector<PastItem>& items, const Steps& steps) {
  items.insert(items.begin(), PastItem());  // for steps of line 0
  size_t step = 0;
  for (size_t first = 0; first < items.size(); ++first) {
    size_t last = first + 1, end = step;
    while (last < items.size() && items[last].first_line == items[first].first_line) ++last;
    const int line = last < items.size() ? items[last].first_line : std::numeric_limits<int>::max();
    while (end < steps.size() && steps[end].line < line) ++end;
    if (last > first + 1 && share(items, first, last, steps, step, end)) {
      first = last - 1;
    } else {
      merge(items, first, last);
      items[first].steps.clear();
      for (size_t i = step; i < end; ++i) items[first].steps.push_back(i);
    }
    step = end;
  }
}

/// Takes the compiler's names for those of an item with steps. A variable with a constant is counted to the step before
/// it: such a name stays with its item.
void take_names(std::vector<PastItem>& items, const Steps& steps) {
  std::vector<std::vector<DefinedName>> names(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t step = 0; step < steps.size() && !items[i].steps.empty(); ++step)
      for (const std::string& name : steps[step].names)
        if (has_name(items[i], name) ||
            (std::ranges::find(items[i].steps, step) != items[i].steps.end() &&
             std::ranges::none_of(items, [&](const PastItem& each) { return has_name(each, name); })))
          names[i].push_back({name, std::nullopt});
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (names[i].empty()) continue;
    items[i].adds = items[i].is_unnamed = false;
    if (!items[i].has_many) items[i].names.clear();
    items[i].names.insert(items[i].names.end(), names[i].begin(), names[i].end());
  }
}

void add_with_inner(PastItem item, std::vector<PastItem>& result) {
  if (!item.steps.empty() || item.inner.empty()) return result.push_back(std::move(item));
  for (PastItem& each : item.inner) add_with_inner(std::move(each), result);
}

}  // namespace

bool has_name(const PastItem& item, const std::string& name) {
  return std::ranges::any_of(item.names,
                             [&](const DefinedName& each) { return last_part(each.name) == last_part(name); });
}

std::vector<PastItem> past_items(const std::string& text, const Steps& steps) {
  std::vector<PastItem> items = Reader(text).take(), result;
  give_steps(items, steps);
  take_names(items, steps);
  for (PastItem& item : items) {
    item.is_unnamed |= item.is_statement && item.steps.empty();
    add_with_inner(std::move(item), result);
  }
  return result;
}

}  // namespace lockstep::shell
