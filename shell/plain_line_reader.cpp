#include "shell/plain_line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>

#include "shell/script.h"

namespace lockstep::shell {
namespace {

std::string_view strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool begins_with_word(std::string_view line, std::string_view word) {
  return line.starts_with(word) &&
         (line.size() == word.size() ||
          !(std::isalnum(static_cast<unsigned char>(line[word.size()])) || line[word.size()] == '_'));
}

bool is_marker(std::string_view line) {
  return line.starts_with("// %%") && (line.size() == 5 || line[5] == ' ' || line[5] == '\t');
}

/// A head of a definition whose body stands on the next line: "struct Net", "template <typename T>".
bool awaits_body(std::string_view text) {
  const size_t last = text.rfind('\n');
  const std::string_view line = strip(last == std::string_view::npos ? text : text.substr(last + 1));
  if (line.empty() || line.back() == ';' || line.back() == '}') return false;
  for (const char* word : {"struct", "class", "union", "enum", "namespace", "template"})
    if (begins_with_word(line, word)) return true;
  return false;
}

}  // namespace

bool continues_statement(std::string_view line) {
  line = strip(line);
  for (const char* word : {"else", "catch"})
    if (begins_with_word(line, word)) return true;
  for (const char* sign : {"{", ".", "->", "<<", ">>", "&&", "||", "?", ":", "=", "+", ",", ")", "}"})
    if (line.starts_with(sign)) return !line.starts_with("++") && !line.starts_with("::") && !line.starts_with("...");
  return false;
}

bool PlainLineReader::fill() {
  services_.wait(fd_);
  char bytes[1 << 14];
  ssize_t count;
  do count = ::read(fd_, bytes, sizeof bytes);
  while (count < 0 && errno == EINTR);
  if (count <= 0) {
    at_end_ = true;
    return false;
  }
  buffer_.append(bytes, static_cast<size_t>(count));
  return true;
}

bool PlainLineReader::next_line(std::string& line) {
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos && !at_end_) fill();
  if (end == std::string::npos && buffer_.empty()) return false;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

/// Is the next line there already? Somebody who waits for answers has not sent it yet, and must not be kept waiting.
bool PlainLineReader::has_line_at_hand() {
  while (buffer_.find('\n') == std::string::npos) {
    pollfd poll{fd_, POLLIN, 0};
    if (at_end_ || ::poll(&poll, 1, 0) <= 0 || !fill()) return !buffer_.empty();
  }
  return true;
}

LineReader::Input PlainLineReader::read(const std::string&) {
  std::string text, line;
  while (next_line(line)) {
    if (is_marker(line)) {
      // The marker's own text is a script's: its errors are told as a script's are.
      const std::vector<ScriptCell> cells = parse_script(line + "\nx\n", "<stdin>");
      const bool had_text = strip(text).size() > 0 && !skipping_;
      in_script_ = true;
      skipping_ = cells.empty() || cells.front().markdown;
      if (had_text) return {End::cell, std::move(text)};
      text.clear();
      continue;
    }
    if (skipping_) continue;
    if (text.empty() && strip(line).empty()) continue;
    text += (text.empty() ? "" : "\n") + line;
    if (in_script_ || awaits_body(text)) continue;
    if (has_line_at_hand() && continues_statement(std::string_view(buffer_).substr(0, buffer_.find('\n')))) continue;
    if (services_.completeness(text).status != "incomplete") return {End::cell, std::move(text)};
  }
  if (strip(text).empty() || skipping_) return {End::end_of_input, ""};
  return {End::cell, std::move(text)};
}

}  // namespace lockstep::shell
