#include "inspectors/pickle/python_pickle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <stdexcept>

namespace lockstep::inspect {
namespace {

using Kind = PickledValue::Kind;

// Values that contain one another, or themselves, go no deeper.
constexpr int kDeepestPickle = 200;

// So many bytes are counted for a value beside its text, for an element of a list or an entry of a dictionary, for a
// value that has a number in the pickle, for an opcode, and for a part of a text.
constexpr uint64_t kValueCost = sizeof(PickledValue) + 48, kItemCost = 16, kEntryCost = 32, kMemoCost = 64,
                   kOpcodeCost = 16, kPartCost = 64;

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char byte : bytes)
    (digits += kDigits[static_cast<uint8_t>(byte) >> 4U]) += kDigits[static_cast<uint8_t>(byte) & 15U];
  return digits;
}

/// Is a stack machine for the opcodes of a pickle, which runs no code.
class PickleReader {
 public:
  /// Adds every value to `all`.
  PickleReader(std::string_view bytes, std::vector<Pickled>& all, ReadingLimit& limit)
      : left_(bytes), all_(all), limit_(limit) {}

  Pickled run() {
    while (true) {
      const auto opcode = static_cast<uint8_t>(take(1)[0]);
      if (opcode != '.') {
        step(opcode);
        continue;
      }
      if (!left_.empty()) throw std::runtime_error(fmt::format("{} bytes follow its pickle", left_.size()));
      return pop();
    }
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > left_.size()) throw std::runtime_error("its pickle ends early");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <typename Number>
  Number number() {
    Number value;  // little-endian, as this machine is
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string line() {
    const size_t end = left_.find('\n');
    if (end == std::string_view::npos) throw std::runtime_error("its pickle ends early");
    std::string text(take(end));
    take(1);
    return text;
  }

  void push(Pickled value) { stack_.push_back(std::move(value)); }
  void push(Kind kind, std::string text = {}, std::vector<Pickled> items = {}) {
    limit_.take(kValueCost + text.size() + kItemCost * items.size());
    auto value = std::make_shared<PickledValue>();
    value->kind = kind;
    value->text = std::move(text);
    value->items = std::move(items);
    all_.push_back(value);
    push(std::move(value));
  }
  const Pickled& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw std::runtime_error("its pickle is damaged");
    return stack_.back();
  }
  Pickled pop() {
    Pickled value = top();
    stack_.pop_back();
    return value;
  }
  /// Returns what has been pushed since the last mark.
  std::vector<Pickled> pop_to_mark() {
    if (marks_.empty()) throw std::runtime_error("its pickle is damaged");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Pickled> values(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  std::vector<Pickled> pop(size_t count) {
    std::vector<Pickled> values(count);
    for (size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  void put_entries(const Pickled& into, const std::vector<Pickled>& values) {
    if (values.size() % 2) throw std::runtime_error("its pickle is damaged");
    limit_.take(kEntryCost * values.size() / 2);
    for (size_t i = 0; i < values.size(); i += 2) into->entries.emplace_back(values[i], values[i + 1]);
  }
  void put_items(const Pickled& into, const std::vector<Pickled>& values) {
    limit_.take(kItemCost * values.size());
    into->items.insert(into->items.end(), values.begin(), values.end());
  }
  void call() {
    std::vector<Pickled> values = pop(2);
    push(Kind::kCall, {}, std::move(values));
  }
  void memoize(uint32_t index) {
    limit_.take(kMemoCost);
    memo_[index] = top();
  }
  Pickled memoized(uint32_t index) const {
    const auto found = memo_.find(index);
    if (found == memo_.end()) throw std::runtime_error("its pickle is damaged");
    return found->second;
  }

  /// Takes any number of bytes, two's complement.
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) {
      const std::string most_significant_first(bytes.rbegin(), bytes.rend());
      return push(Kind::kPlain, "0x" + hexadecimal(most_significant_first));
    }
    int64_t value = !bytes.empty() && (bytes.back() & 0x80) ? -1 : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    push(Kind::kPlain, std::to_string(value));
  }

  void step(uint8_t opcode) {
    limit_.take(kOpcodeCost);
    switch (opcode) {
      case 0x80:  // PROTO
        take(1);
        return;
      case 0x95:  // FRAME
        take(8);
        return;
      case '(':
        return marks_.push_back(stack_.size());
      case '0':
        pop();
        return;
      case '1':
        pop_to_mark();
        return;
      case '2':
        return push(Pickled(top()));

      case 'N':
        return push(Kind::kPlain, "None");
      case 0x88:
        return push(Kind::kPlain, "True");
      case 0x89:
        return push(Kind::kPlain, "False");
      case 'J':
        return push(Kind::kPlain, std::to_string(number<int32_t>()));
      case 'K':
        return push(Kind::kPlain, std::to_string(number<uint8_t>()));
      case 'M':
        return push(Kind::kPlain, std::to_string(number<uint16_t>()));
      case 0x8a:
        return push_long(take(number<uint8_t>()));
      case 0x8b:
        return push_long(take(number<uint32_t>()));
      case 'G': {  // big-endian
        const auto bits = __builtin_bswap64(number<uint64_t>());
        return push(Kind::kPlain, text_of(std::bit_cast<double>(bits)));
      }

      case 'X':
      case 'T':
        return push(Kind::kText, std::string(take(number<uint32_t>())));
      case 0x8c:
      case 'U':
        return push(Kind::kText, std::string(take(number<uint8_t>())));
      case 0x8d:
        return push(Kind::kText, std::string(take(number<uint64_t>())));
      case 'B':
        return push(Kind::kBytes, std::string(take(number<uint32_t>())));
      case 'C':
        return push(Kind::kBytes, std::string(take(number<uint8_t>())));
      case 0x8e:
      case 0x96:
        return push(Kind::kBytes, std::string(take(number<uint64_t>())));

      case ']':
      case ')':
        return push(Kind::kList);
      case '}':
        return push(Kind::kDictionary);
      case 0x8f:
        return push(Kind::kSet);
      case 'l':
      case 't': {
        std::vector<Pickled> items = pop_to_mark();
        return push(Kind::kList, {}, std::move(items));
      }
      case 0x91: {
        std::vector<Pickled> items = pop_to_mark();
        return push(Kind::kSet, {}, std::move(items));
      }
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<Pickled> items = pop(opcode - 0x84U);
        return push(Kind::kList, {}, std::move(items));
      }
      case 'd': {
        const std::vector<Pickled> values = pop_to_mark();
        push(Kind::kDictionary);
        return put_entries(top(), values);
      }
      case 'a': {
        const std::vector<Pickled> item = pop(1);
        return put_items(top(), item);
      }
      case 'e':
      case 0x90: {
        const std::vector<Pickled> items = pop_to_mark();
        return put_items(top(), items);
      }
      case 's': {
        const std::vector<Pickled> entry = pop(2);
        return put_entries(top(), entry);
      }
      case 'u': {
        const std::vector<Pickled> values = pop_to_mark();
        return put_entries(top(), values);
      }

      case 'c': {
        const std::string module = line();
        return push(Kind::kName, module + "." + line());
      }
      case 0x93: {
        const std::vector<Pickled> name = pop(2);
        return push(Kind::kName, name[0]->text + "." + name[1]->text);
      }
      case 'R':
      case 0x81:
        return call();
      case 0x92: {  // a call with keyword arguments, which become a further item
        const Pickled keywords = pop();
        call();
        return put_items(top(), {keywords});
      }
      case 'b': {
        const Pickled state = pop();
        top()->state = state;
        return;
      }
      case 'Q': {
        std::vector<Pickled> id = pop(1);
        return push(Kind::kPersistent, {}, std::move(id));
      }

      case 'q':
        return memoize(number<uint8_t>());
      case 'r':
        return memoize(number<uint32_t>());
      case 0x94:
        return memoize(static_cast<uint32_t>(memo_.size()));
      case 'h':
        return push(memoized(number<uint8_t>()));
      case 'j':
        return push(memoized(number<uint32_t>()));
      default:
        throw std::runtime_error(fmt::format("its pickle is damaged, or of another kind (opcode {:#04x})", opcode));
    }
  }

  std::string_view left_;
  std::vector<Pickled>& all_;
  ReadingLimit& limit_;
  std::vector<Pickled> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Pickled> memo_;
};

/// Writes escapes, so that different strings have different texts.
std::string in_quotes(const std::string& text) {
  std::string result = "'";
  for (const char each : text) {
    if (each == '\'' || each == '\\') result += '\\';
    result += each;
  }
  return result + "'";
}

/// Before protocol 4 a set is a call with a list.
bool is_set(const Pickled& value) {
  for (const char* name : {"__builtin__.set", "__builtin__.frozenset", "builtins.set", "builtins.frozenset"})
    if (value->is_call_of(name)) return true;
  return value->kind == Kind::kSet;
}

const std::vector<Pickled>& set_items(const Pickled& set) {
  if (set->kind != Kind::kCall) return set->items;
  const std::vector<Pickled>& arguments = set->items[1]->items;
  return arguments.empty() ? arguments : arguments[0]->items;
}

std::string text_at(const Pickled& value, int depth, ReadingLimit& limit) {
  if (depth > kDeepestPickle) throw std::runtime_error("values contain one another too deeply");
  limit.take(kPartCost + 2 * value->text.size());
  std::vector<std::string> parts;
  if (is_set(value)) {
    for (const Pickled& item : set_items(value)) parts.push_back(text_at(item, depth + 1, limit));
    std::sort(parts.begin(), parts.end());
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  switch (value->kind) {
    case Kind::kPlain:
    case Kind::kName:
      return value->text;
    case Kind::kText:
      return in_quotes(value->text);
    case Kind::kBytes:
      return fmt::format("b'{}'", hexadecimal(value->text));
    case Kind::kList:
      for (const Pickled& item : value->items) parts.push_back(text_at(item, depth + 1, limit));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case Kind::kPersistent:
      return text_at(value->items.at(0), depth + 1, limit);
    case Kind::kSet:
    case Kind::kDictionary:
    case Kind::kCall:
      break;
  }
  std::string text;
  for (const Pickled& item : value->items) text += text_at(item, depth + 1, limit);
  for (const auto& [key, entry] : value->entries)
    parts.push_back(text_at(key, depth + 1, limit) + ": " + text_at(entry, depth + 1, limit));
  if (!parts.empty() || value->kind == Kind::kDictionary) text += fmt::format("{{{}}}", fmt::join(parts, ", "));
  if (value->state) text += text_at(value->state, depth + 1, limit);
  return text;
}

}  // namespace

Pickle::Pickle(std::string_view bytes, ReadingLimit limit)
    : limit_(limit), value_(PickleReader(bytes, all_, limit_).run()) {}

PickledValues::~PickledValues() {
  for (const Pickled& each : *this) {
    each->items.clear();
    each->entries.clear();
    each->state.reset();
  }
}

int64_t integer_of(const Pickled& value) {
  int64_t result = 0;
  const char* end = value->text.data() + value->text.size();
  if (value->kind != Kind::kPlain || std::from_chars(value->text.data(), end, result).ptr != end || value->text.empty())
    throw std::runtime_error("its pickle has " + short_text_of(value) + " where a number should be");
  return result;
}

std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

std::string text_of(const Pickled& value, ReadingLimit& limit) { return text_at(value, 0, limit); }

std::string short_text_of(const Pickled& value) {
  constexpr size_t kShown = 100;
  ReadingLimit limit(kShown * kPartCost);
  try {
    const std::string text = text_at(value, 0, limit);
    return text.size() <= kShown ? text : text.substr(0, kShown) + "…";
  } catch (const std::runtime_error&) {  // too deep or too long for a message
    return "a large value";
  }
}

bool is_none(const Pickled& value) { return value->kind == Kind::kPlain && value->text == "None"; }

bool is_empty(const Pickled& value) {
  if (is_none(value)) return true;
  if (value->kind == Kind::kDictionary || value->is_call_of("collections.OrderedDict"))
    return value->entries.empty() && !value->state;
  return is_set(value) && set_items(value).empty();
}

}  // namespace lockstep::inspect
