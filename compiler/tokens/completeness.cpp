#include "compiler/tokens/completeness.h"

#include <cctype>
#include <string>
#include <vector>

namespace lockstep::compiler {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  protocol::Completeness run() {
    bool line_begins = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        line_begins = true;
        ++at_;
      } else if (c == '\\' && rest_is_blank(at_ + 1)) {
        return incomplete();
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else if (line_begins && c == '#') {
        if (!directive()) return incomplete();
      } else {
        line_begins = false;
        if (!token()) return incomplete();
        if (invalid_) return {TextStatus::invalid, 0};
      }
    }
    if (!brackets_.empty() || conditions_ > 0) return incomplete();
    return {TextStatus::complete, 0};
  }

 private:
  protocol::Completeness incomplete() const { return {TextStatus::incomplete, static_cast<int>(brackets_.size())}; }

  bool starts(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool rest_is_blank(size_t from) const {
    for (; from < text_.size(); ++from)
      if (!std::isspace(static_cast<unsigned char>(text_[from]))) return false;
    return true;
  }

  /// Skips the line, and the next one after a backslash at its end. False if the text ends
  /// with the backslash, or within a comment.
  bool skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      if (starts("/*")) {
        if (!skip_block_comment()) return false;
        continue;
      }
      if (text_[at_] == '\\') {
        if (rest_is_blank(at_ + 1)) return false;
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
      }
      ++at_;
    }
    return true;
  }

  bool directive() {
    ++at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (starts("if")) ++conditions_;
    if (starts("endif") && conditions_ > 0) --conditions_;
    return skip_line();
  }

  bool skip_block_comment() {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) return false;
    at_ = end + 2;
    return true;
  }

  bool raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return false;
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t end = text_.find(close, open);
    if (end == std::string_view::npos) return false;
    at_ = end + close.size();
    return true;
  }

  /// A quote that its line does not close is an error; another line would not correct it.
  bool quoted(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') {
        if (rest_is_blank(at_ + 1)) return false;
        ++at_;
      } else if (text_[at_] == quote) {
        ++at_;
        return true;
      }
    }
    return true;
  }

  bool token() {
    const char c = text_[at_];
    if (starts("//")) return skip_line();
    if (starts("/*")) return skip_block_comment();
    if (is_word(c)) {
      const size_t begin = at_;
      const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
      while (at_ < text_.size() && (is_word(text_[at_]) || (number && text_[at_] == '\'' && at_ + 1 < text_.size() &&
                                                            is_word(text_[at_ + 1]))))
        ++at_;
      if (at_ < text_.size() && text_[at_] == '"' && text_[at_ - 1] == 'R' && at_ - begin <= 3) return raw_string();
      return true;
    }
    if (c == '"' || c == '\'') return quoted(c);
    if (c == '(' || c == '[' || c == '{') brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      invalid_ = brackets_.empty() || brackets_.back() != c;
      if (!invalid_) brackets_.pop_back();
    }
    ++at_;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<char> brackets_;  // what closes them
  int conditions_ = 0;
  bool invalid_ = false;
};

}  // namespace

protocol::Completeness completeness(std::string_view text) { return Scanner(text).run(); }

}  // namespace lockstep::compiler
