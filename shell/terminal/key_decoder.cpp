#include "shell/terminal/key_decoder.h"

#include <algorithm>
#include <utility>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr std::string_view kPasteBegin = "\033[200~";
constexpr std::string_view kPasteEnd = "\033[201~";
constexpr size_t kLongestSequence = 32;

Key plain(Key::Kind kind) { return {.kind = kind, .text = {}}; }

/// `sequence` is what comes after ESC, up to the final character: "[1;5D".
Key key_of(std::string_view sequence) {
  using enum Key::Kind;
  static const std::pair<std::string_view, Key::Kind> kKeys[] = {{"[A", up},
                                                                 {"OA", up},
                                                                 {"[B", down},
                                                                 {"OB", down},
                                                                 {"[C", right},
                                                                 {"OC", right},
                                                                 {"[D", left},
                                                                 {"OD", left},
                                                                 {"[H", home},
                                                                 {"OH", home},
                                                                 {"[1~", home},
                                                                 {"[7~", home},
                                                                 {"[F", end},
                                                                 {"OF", end},
                                                                 {"[4~", end},
                                                                 {"[8~", end},
                                                                 {"[3~", del},
                                                                 {"[5~", page_up},
                                                                 {"[6~", page_down},
                                                                 {"[Z", back_tab},
                                                                 {"[1;5D", word_left},
                                                                 {"[1;3D", word_left},
                                                                 {"[1;5C", word_right},
                                                                 {"[1;3C", word_right},
                                                                 {"[1;5H", top},
                                                                 {"[1;5F", bottom},
                                                                 {"OQ", f2},
                                                                 {"[12~", f2},
                                                                 {"OM", enter},
                                                                 {"[27;5;13~", alt_enter},
                                                                 {"[13;2u", alt_enter},
                                                                 {"[27;2;13~", alt_enter}};
  for (const auto& [known, kind] : kKeys)
    if (sequence == known) return plain(kind);
  return {};
}

}  // namespace

void KeyDecoder::clear() {
  bytes_.clear();
  pasting_ = false;
  searched_ = 0;
}

std::optional<Key> KeyDecoder::paste() {
  const size_t end = bytes_.find(kPasteEnd, searched_);
  if (end == std::string::npos) {
    searched_ = bytes_.size() < kPasteEnd.size() ? 0 : bytes_.size() - kPasteEnd.size();
    return std::nullopt;
  }
  Key key = plain(Key::Kind::paste);
  for (size_t i = 0; i < end; ++i) {
    const char c = bytes_[i];
    if (c == '\r') {
      if (i + 1 == end || bytes_[i + 1] != '\n') key.text += '\n';
    } else if (c == '\n' || c == '\t' || (static_cast<unsigned char>(c) >= 32 && c != 127)) {
      key.text += c;
    }
  }
  bytes_.erase(0, end + kPasteEnd.size());
  pasting_ = false;
  searched_ = 0;
  return key;
}

std::optional<Key> KeyDecoder::escape_sequence(bool is_over) {
  if (bytes_.size() == 1) {
    if (!is_over) return std::nullopt;
    bytes_.clear();
    return plain(Key::Kind::escape);
  }
  const char second = bytes_[1];
  if (second != '[' && second != 'O') {
    if (second == '\033') {  // Esc, and then another sequence
      bytes_.erase(0, 1);
      return plain(Key::Kind::escape);
    }
    bytes_.erase(0, 2);
    if (second == '\r' || second == '\n') return plain(Key::Kind::alt_enter);
    Key key = plain(Key::Kind::alt);
    key.letter = second;
    return key;
  }
  size_t length = 2;
  while (length < bytes_.size() && !(bytes_[length] >= 0x40 && bytes_[length] <= 0x7E)) ++length;
  if (length == bytes_.size()) {
    if (!is_over && length < kLongestSequence) return std::nullopt;
    const bool is_alt = length == 2;
    bytes_.clear();
    Key key = plain(is_alt ? Key::Kind::alt : Key::Kind::unknown);
    key.letter = second;
    return key;
  }
  const std::string sequence = bytes_.substr(0, length + 1);
  bytes_.erase(0, length + 1);
  if (sequence == kPasteBegin) {
    pasting_ = true;
    return paste();
  }
  return key_of(std::string_view(sequence).substr(1));
}

std::optional<Key> KeyDecoder::next(bool is_over) {
  if (pasting_) return paste();
  if (bytes_.empty()) return std::nullopt;
  const auto first = static_cast<unsigned char>(bytes_[0]);
  if (first == 033) return escape_sequence(is_over);
  if (first < 32 || first == 127) {
    bytes_.erase(0, 1);
    if (first == '\r' || first == '\n') return plain(Key::Kind::enter);
    if (first == '\t') return plain(Key::Kind::tab);
    if (first == 127 || first == '\b') return plain(Key::Kind::backspace);
    Key key = plain(Key::Kind::control);
    key.letter = static_cast<char>(first == 31 ? '_' : first + 96);
    return key;
  }
  // Takes as many characters as there are: what was typed while a cell ran is inserted at once.
  size_t end = 0;
  while (end < bytes_.size()) {
    const auto lead = static_cast<unsigned char>(bytes_[end]);
    if (lead < 32 || lead == 127) break;
    const size_t length = character_length(bytes_[end]);
    if (bytes_.size() - end < length && !is_over) break;
    end += std::min(length, bytes_.size() - end);
    if (lead == '}' || lead == '(' || lead == ')' || lead == ',') break;  // keys that do more than insert
    if (end < bytes_.size() && (bytes_[end] == '}' || bytes_[end] == '(' || bytes_[end] == ')' || bytes_[end] == ','))
      break;
  }
  if (end == 0) return std::nullopt;
  Key key = plain(Key::Kind::text);
  key.text = bytes_.substr(0, end);
  if (find_invalid_utf8(key.text)) key.text = to_utf8(to_wide(key.text));
  bytes_.erase(0, end);
  return key;
}

}  // namespace lockstep::shell
