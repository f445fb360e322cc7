// Makes keys of the bytes that a terminal sends. A sequence may come in pieces; a bracketed paste is one key.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::shell {

struct Key {
  enum class Kind {
    text,  // characters that were typed, `text` has them
    paste,  // a pasted block, with line ends as \n
    control,  // Ctrl with the letter `letter`
    alt,  // Alt with the character `letter`
    enter,
    alt_enter,
    tab,
    back_tab,
    backspace,
    del,
    up,
    down,
    left,
    right,
    home,
    end,
    page_up,
    page_down,
    word_left,
    word_right,
    top,  // Ctrl-Home
    bottom,  // Ctrl-End
    f2,
    escape,
    unknown,
  };
  Kind kind = Kind::unknown;
  std::string text;
  char letter = 0;
};

class KeyDecoder {
 public:
  void feed(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next key; nothing where its bytes are not complete yet. `is_over`: no further bytes come soon, so that
  /// an escape stands for itself.
  std::optional<Key> next(bool is_over = false);
  /// Whether there are bytes of a key that is not complete; those of a paste do not count.
  bool is_waiting() const { return !bytes_.empty() && !pasting_; }
  bool is_pasting() const { return pasting_; }
  bool empty() const { return bytes_.empty() && !pasting_; }
  /// Forgets what is not complete.
  void clear();

 private:
  std::optional<Key> escape_sequence(bool is_over);
  std::optional<Key> paste();

  std::string bytes_;
  bool pasting_ = false;
  size_t searched_ = 0;  // up to here bytes_ has no end of the paste
};

}  // namespace lockstep::shell
