#include "shell/terminal/plain_line_reader.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "shell/scripts/script.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

const char* const kContinued = "... ";

bool begins_with_word(std::string_view line, std::string_view word) {
  return line.starts_with(word) && (line.size() == word.size() || !is_name_character(line[word.size()]));
}

bool is_marker(std::string_view line) {
  return line.starts_with("// %%") && (line.size() == 5 || line[5] == ' ' || line[5] == '\t');
}

/// Whether it is a head of a definition whose body stands on the next line: "struct Net", "template <typename T>".
bool awaits_body(std::string_view text) {
  const size_t last = text.rfind('\n');
  const std::string_view line = trimmed(last == std::string_view::npos ? text : text.substr(last + 1));
  if (line.empty() || line.back() == ';' || line.back() == '}') return false;
  for (const char* word : {"struct", "class", "union", "enum", "namespace", "template"})
    if (begins_with_word(line, word)) return true;
  return false;
}

}  // namespace

bool continues_statement(std::string_view line) {
  line = trimmed(line);
  for (const char* word : {"else", "catch"})
    if (begins_with_word(line, word)) return true;
  for (const char* sign : {"{", ".", "->", "<<", ">>", "&&", "||", "?", ":", "=", "+", ",", ")", "}"})
    if (line.starts_with(sign)) return !line.starts_with("++") && !line.starts_with("::") && !line.starts_with("...");
  return false;
}

PlainLineReader::PlainLineReader(int fd, LineReaderServices services,
                                 std::function<void(const std::string&)> write_prompt)
    : fd_(fd),
      services_(std::move(services)),
      write_prompt_(std::move(write_prompt)),
      wake_(make_event()),
      wait_(::epoll_create1(EPOLL_CLOEXEC)) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, fd_, &event) != 0 ||
      ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    wait_.reset();
}

void PlainLineReader::interrupt() noexcept { set_event(wake_.get()); }

bool PlainLineReader::was_interrupted() { return take_event(wake_.get()); }

/// Takes what comes next. Returns false at the end of the input, and where an interrupt came first.
bool PlainLineReader::fill() {
  if (wait_) services_.wait(wait_.get());
  if (was_interrupted()) {
    interrupted_ = true;
    return false;
  }
  at_end_ = read_some(fd_, buffer_) != Reading::bytes;
  return !at_end_;
}

bool PlainLineReader::next_line(std::string& line) {
  size_t end;
  while ((end = buffer_.find('\n', searched_)) == std::string::npos && !at_end_ && !interrupted_) {
    searched_ = buffer_.size();
    fill();
  }
  searched_ = 0;
  if (interrupted_ || (end == std::string::npos && buffer_.empty())) return false;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end == std::string::npos ? end : end + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

/// Whether the next line is there. Somebody who waits for answers has not sent it yet, and must not be kept waiting.
bool PlainLineReader::has_line_at_hand() {
  size_t searched = 0;
  while (buffer_.find('\n', searched) == std::string::npos) {
    searched = buffer_.size();
    if (at_end_ || interrupted_ || !is_ready(fd_, POLLIN) || !fill()) return !buffer_.empty();
  }
  return true;
}

void PlainLineReader::hide() {
  if (write_prompt_ && reading_) write_prompt_("\n");
}

void PlainLineReader::show() {
  if (write_prompt_ && reading_) write_prompt_(prompt_);
}

LineReader::Input PlainLineReader::read(const std::string& prompt) {
  std::string text, line;
  prompt_ = prompt;
  interrupted_ = false;
  was_interrupted();  // signals that came after the last cell was taken
  const auto read_line = [&] {
    if (write_prompt_) write_prompt_(text.empty() ? prompt_ : kContinued);
    reading_ = true;
    const bool is_there = next_line(line);
    reading_ = false;
    return is_there;
  };
  while (read_line()) {
    if (is_marker(line) && !write_prompt_) {
      // The text of the marker belongs to a script: its errors are reported like those of a script.
      const std::vector<ScriptCell> cells = parse_script(line + "\nx\n", "<stdin>");
      const bool had_text = trimmed(text).size() > 0 && !skipping_;
      in_script_ = true;
      skipping_ = cells.empty() || cells.front().markdown;
      if (had_text) return {End::cell, std::move(text)};
      text.clear();
      continue;
    }
    if (skipping_) continue;
    if (text.empty() && trimmed(line).empty()) continue;
    if (write_prompt_ && trimmed(line).empty()) return {End::cell, std::move(text)};
    text += (text.empty() ? "" : "\n") + line;
    if (in_script_ || awaits_body(text)) continue;
    if (has_line_at_hand() && continues_statement(std::string_view(buffer_).substr(0, buffer_.find('\n')))) continue;
    if (services_.completeness(text, /*is_pasted=*/false).status != TextStatus::incomplete)
      return {End::cell, std::move(text)};
  }
  if (interrupted_) {
    if (write_prompt_) write_prompt_("\n");
    return {End::cancelled, std::move(text)};
  }
  if (trimmed(text).empty() || skipping_) return {End::end_of_input, ""};
  return {End::cell, std::move(text)};
}

}  // namespace lockstep::shell
