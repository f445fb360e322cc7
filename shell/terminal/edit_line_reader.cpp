#include "shell/terminal/edit_line_reader.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/error.h"
#include "shell/text/screen.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr int kHistorySize = 5000;
constexpr size_t kMostListed = 60;
constexpr const char* kIndent = "  ";
constexpr wchar_t kControlC = 3;

// libedit's own commands can't be called; they are bound to sequences that no key sends, and those are pushed.
constexpr const char* kAcceptKeys = "\033[9001~";
constexpr const char* kOlderKeys = "\033[9002~";
constexpr const char* kNewerKeys = "\033[9003~";
constexpr const char* kDeleteKeys = "\033[9004~";

Screen screen_now() { return detect_screen(STDOUT_FILENO); }

std::string_view last_line(std::string_view text) {
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\n") == std::string_view::npos; }

/// One entry for each name: overloads complete to the same text.
void merge_overloads(std::vector<protocol::Completion>& completions) {
  std::stable_sort(completions.begin(), completions.end(),
                   [](const auto& a, const auto& b) { return a.text < b.text; });
  const auto end = std::unique(completions.begin(), completions.end(),
                               [](const auto& a, const auto& b) { return a.text == b.text; });
  completions.erase(end, completions.end());
}

std::string common_prefix(const std::vector<protocol::Completion>& completions) {
  std::string prefix = completions.front().text;
  for (const protocol::Completion& completion : completions) {
    const auto end = std::mismatch(prefix.begin(), prefix.end(), completion.text.begin(), completion.text.end()).first;
    prefix.erase(end, prefix.end());
  }
  return prefix;
}

}  // namespace

/// Functions for libedit's table; the reader is its client data.
struct EditLineReader::Keys {
  static EditLineReader& reader(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditLineReader*>(data);
  }
  static int read(EditLine* edit, wchar_t* character) { return reader(edit).read_character(character); }
  static wchar_t* prompt(EditLine* edit) { return reader(edit).prompt_.data(); }
  static unsigned char enter(EditLine* edit, wint_t) { return reader(edit).enter(false); }
  static unsigned char force(EditLine* edit, wint_t) { return reader(edit).enter(true); }
  static unsigned char paste(EditLine* edit, wint_t) { return reader(edit).paste(); }
  static unsigned char complete(EditLine* edit, wint_t) { return reader(edit).complete(); }
  static unsigned char up(EditLine* edit, wint_t) { return reader(edit).move_line(-1); }
  static unsigned char down(EditLine* edit, wint_t) { return reader(edit).move_line(1); }
  static unsigned char line_begin(EditLine* edit, wint_t) { return reader(edit).move_to(reader(edit).line_begin()); }
  static unsigned char line_end(EditLine* edit, wint_t) { return reader(edit).move_to(reader(edit).line_end()); }

  static unsigned char cancel(EditLine* edit, wint_t) {
    EditLineReader& self = reader(edit);
    self.cancelled_ = true;
    self.cancelled_text_ = self.text();
    el_cursor(edit, 1 << 30);
    self.insert("^C");
    self.accept();
    return CC_REFRESH;
  }

  static unsigned char end(EditLine* edit, wint_t) {
    EditLineReader& self = reader(edit);
    if (self.text().empty()) return CC_EOF;
    el_push(edit, kDeleteKeys);
    return CC_NORM;
  }

  /// A brace that closes a block goes back to where the block began.
  static unsigned char close(EditLine* edit, wint_t) {
    EditLineReader& self = reader(edit);
    const std::string line(last_line(self.text_before_cursor()));
    const bool at_indent = !line.empty() && is_blank(line) && line.ends_with(kIndent) &&
                           self.text_before_cursor().find('\n') != std::string::npos;
    if (at_indent) el_deletestr(edit, static_cast<int>(std::strlen(kIndent)));
    self.insert("}");
    return CC_REFRESH;
  }
};

EditLineReader::EditLineReader(LineReaderServices services, HistoryFile history)
    : services_(std::move(services)), file_(std::move(history)) {
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0)
    throw StartError(std::string("no pipe for the terminal: ") + std::strerror(errno));
  wait_ = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (wait_ < 0 || ::epoll_ctl(wait_, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0 ||
      ::epoll_ctl(wait_, EPOLL_CTL_ADD, wake_[0], &event) != 0)
    throw StartError(std::string("can't wait for the terminal: ") + std::strerror(errno));
  edit_ = el_init("lockstep", stdin, stdout, stderr);
  if (!edit_) throw StartError("libedit can't work with this terminal; set TERM, or give the cells by a pipe");

  history_ = history_winit();
  HistEventW event_out;
  history_w(history_, &event_out, H_SETSIZE, kHistorySize);
  for (const std::string& cell : file_.load(kHistorySize)) {
    history_w(history_, &event_out, H_ENTER, to_wide(cell).c_str());
    last_ = cell;
  }

  el_set(edit_, EL_CLIENTDATA, this);
  el_wset(edit_, EL_PROMPT_ESC, Keys::prompt, L'\1');
  el_set(edit_, EL_GETCFN, Keys::read);
  el_wset(edit_, EL_HIST, history_w, history_);
  el_set(edit_, EL_EDITOR, "emacs");
  const struct {
    const char* name;
    unsigned char (*function)(EditLine*, wint_t);
    std::vector<const char*> keys;
  } bindings[] = {{"ls-enter", Keys::enter, {"^M", "^J"}},
                  {"ls-force", Keys::force, {"\033\r", "\033\n"}},
                  {"ls-paste", Keys::paste, {"\033[200~"}},
                  {"ls-complete", Keys::complete, {"^I"}},
                  {"ls-up", Keys::up, {"\033[A", "\033OA", "^P"}},
                  {"ls-down", Keys::down, {"\033[B", "\033OB", "^N"}},
                  {"ls-line-begin", Keys::line_begin, {"^A", "\033[H", "\033OH", "\033[1~"}},
                  {"ls-line-end", Keys::line_end, {"^E", "\033[F", "\033OF", "\033[4~"}},
                  {"ls-cancel", Keys::cancel, {"^C"}},
                  {"ls-end", Keys::end, {"^D"}},
                  {"ls-close", Keys::close, {"}"}}};
  for (const auto& binding : bindings) {
    el_set(edit_, EL_ADDFN, binding.name, "see the head of edit_line_reader.h", binding.function);
    for (const char* key : binding.keys) el_set(edit_, EL_BIND, key, binding.name, nullptr);
  }
  const std::pair<const char*, const char*> builtins[] = {
      {kAcceptKeys, "ed-newline"},          {kOlderKeys, "ed-prev-history"}, {kNewerKeys, "ed-next-history"},
      {kDeleteKeys, "ed-delete-next-char"}, {"^R", "em-inc-search-prev"},    {"\033[3~", "ed-delete-next-char"},
      {"\033[1;5D", "ed-prev-word"},        {"\033[1;5C", "em-next-word"},   {"\033[1;3D", "ed-prev-word"},
      {"\033[1;3C", "em-next-word"},        {"^W", "ed-delete-prev-word"}};
  for (const auto& [key, command] : builtins) el_set(edit_, EL_BIND, key, command, nullptr);
  el_source(edit_, nullptr);
}

EditLineReader::~EditLineReader() {
  if (edit_) el_end(edit_);
  if (history_) history_wend(history_);
  for (const int fd : {wake_[0], wake_[1], wait_})
    if (fd >= 0) ::close(fd);
}

LineReader::Input EditLineReader::read(const std::string& prompt) {
  set_prompt(prompt);
  cancelled_ = false;
  char stale;
  while (::read(wake_[0], &stale, 1) == 1) {  // signals that came after the last cell was taken
  }
  reading_ = true;
  write("\033[?2004h");
  // libedit itself would draw the prompt first, and the terminal echo what is typed in between.
  el_set(edit_, EL_PREP_TERM, 1);
  int count = 0;
  const wchar_t* line = el_wgets(edit_, &count);
  write("\033[?2004l");
  reading_ = false;
  if (!line || count <= 0) {
    write("\n");
    return {End::end_of_input, ""};
  }
  if (cancelled_) return {End::cancelled, std::move(cancelled_text_)};
  std::string text = to_utf8(std::wstring_view(line, static_cast<size_t>(count)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\t')) text.pop_back();
  return {End::cell, std::move(text)};
}

void EditLineReader::set_prompt(const std::string& prompt) {
  // libedit takes what is between two \1 for the terminal alone: no columns.
  prompt_.clear();
  for (std::string_view rest = prompt; !rest.empty();) {
    const size_t escape = escape_length(rest);
    const size_t bytes = escape ? escape : first_character(rest).bytes;
    const std::wstring piece = to_wide(rest.substr(0, bytes));
    prompt_ += escape ? L"\1" + piece + L"\1" : piece;
    rest.remove_prefix(bytes);
  }
  prompt_width_ = text_width(prompt);
}

void EditLineReader::remember(const std::string& text) {
  if (text.empty() || text == last_) return;
  last_ = text;
  HistEventW event;
  history_w(history_, &event, H_ENTER, to_wide(text).c_str());
  if (file_works_ && !file_.add(text)) {
    file_works_ = false;
    write(std::string("the history is not kept: its file can't be written (") + std::strerror(errno) +
          "); see XDG_STATE_HOME\n");
  }
}

ssize_t EditLineReader::read_byte(char* byte) {
  if (typed_ahead_.empty()) return ::read(STDIN_FILENO, byte, 1);
  *byte = typed_ahead_.front();
  typed_ahead_.erase(0, 1);
  return 1;
}

int EditLineReader::read_character(wchar_t* character) {
  std::string bytes;
  for (;;) {
    if (typed_ahead_.empty()) services_.wait(wait_);
    char what;
    while (::read(wake_[0], &what, 1) == 1) {
      if (what == 'i') {
        *character = kControlC;
        return 1;
      }
      // Another size moves what is on the screen about; a shell that stopped us has changed the terminal's settings.
      if (what == 'c') el_set(edit_, EL_PREP_TERM, 1);
      if (what == 'w') el_resize(edit_);
      el_set(edit_, EL_REFRESH);
    }
    int available = 0;
    epoll_event event;
    if (typed_ahead_.empty() && ::ioctl(STDIN_FILENO, FIONREAD, &available) == 0 && available == 0 &&
        ::epoll_wait(wait_, &event, 1, 0) == 0)
      continue;
    char byte;
    const ssize_t count = read_byte(&byte);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return 0;
    bytes += byte;
    const auto lead = static_cast<unsigned char>(bytes[0]);
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (bytes.size() < length) continue;
    *character = static_cast<wchar_t>(first_character(bytes).code);
    return 1;
  }
}

std::string EditLineReader::text() const { return to_utf8(whole()); }

std::string EditLineReader::text_before_cursor() const { return to_utf8(whole().substr(0, cursor())); }

void EditLineReader::insert(const std::string& text) { el_winsertstr(edit_, to_wide(text).c_str()); }

void EditLineReader::write(const std::string& bytes) const {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

void EditLineReader::accept() { el_push(edit_, kAcceptKeys); }

unsigned char EditLineReader::enter(bool force) {
  const std::string whole = text(), before = text_before_cursor();
  const bool on_last_line = whole.find('\n', before.size()) == std::string::npos;
  const bool empty_last_line = on_last_line && before.find('\n') != std::string::npos && is_blank(last_line(whole));
  if (force || empty_last_line || is_blank(whole)) {
    accept();
    return CC_NORM;
  }
  if (on_last_line && services_.completeness(whole).status != TextStatus::incomplete) {
    accept();
    return CC_NORM;
  }
  std::string line = "\n";
  const int depth = std::min(services_.completeness(before).indent, 40);
  for (int i = 0; i < depth; ++i) line += kIndent;
  insert(line);
  return CC_REFRESH;
}

/// Takes the block up to the end of bracketed paste; line ends at its end are left out, so that Enter runs the cell.
unsigned char EditLineReader::paste() {
  const std::wstring end = L"\033[201~";
  std::wstring block;
  while (!block.ends_with(end)) {
    wchar_t character;
    if (read_character(&character) != 1 || character == kControlC) return CC_REFRESH;
    block += character;
  }
  block.erase(block.size() - end.size());
  std::wstring clean;
  for (size_t i = 0; i < block.size(); ++i) {
    const wchar_t c = block[i];
    if (c == L'\r') {
      if (i + 1 == block.size() || block[i + 1] != L'\n') clean += L'\n';
    } else if (c == L'\n' || c == L'\t' || (c >= 32 && c != 127)) {
      clean += c;
    }
  }
  while (!clean.empty() && clean.back() == L'\n') clean.pop_back();
  el_winsertstr(edit_, clean.c_str());
  return CC_REFRESH;
}

size_t EditLineReader::cursor() const {
  const LineInfoW* line = el_wline(edit_);
  return static_cast<size_t>(line->cursor - line->buffer);
}

std::wstring_view EditLineReader::whole() const {
  const LineInfoW* line = el_wline(edit_);
  return {line->buffer, static_cast<size_t>(line->lastchar - line->buffer)};
}

/// Of the line in which the cursor stands.
size_t EditLineReader::line_begin() const {
  const size_t at = cursor();
  const size_t before = at == 0 ? std::wstring_view::npos : whole().rfind(L'\n', at - 1);
  return before == std::wstring_view::npos ? 0 : before + 1;
}

size_t EditLineReader::line_end() const { return std::min(whole().find(L'\n', cursor()), whole().size()); }

unsigned char EditLineReader::move_to(size_t target) {
  el_cursor(edit_, static_cast<int>(target) - static_cast<int>(cursor()));
  return CC_CURSOR;
}

/// To the same column of the line above or below; from the first or last line on, through the history.
unsigned char EditLineReader::move_line(int direction) {
  const size_t begin = line_begin(), end = line_end(), column = cursor() - begin;
  if (direction < 0 ? begin == 0 : end == whole().size()) {
    el_push(edit_, direction < 0 ? kOlderKeys : kNewerKeys);
    return CC_NORM;
  }
  if (direction > 0) return move_to(std::min(end + 1 + column, std::min(whole().find(L'\n', end + 1), whole().size())));
  const size_t above = begin >= 2 ? whole().rfind(L'\n', begin - 2) : std::wstring_view::npos;
  return move_to(std::min((above == std::wstring_view::npos ? 0 : above + 1) + column, begin - 1));
}

unsigned char EditLineReader::complete() {
  const std::string before = text_before_cursor(), whole = text();
  if (is_blank(last_line(before))) {
    insert(kIndent);
    return CC_REFRESH;
  }
  protocol::Completions found = services_.complete(whole, static_cast<int64_t>(before.size()));
  merge_overloads(found.completions);
  if (found.completions.empty()) return CC_REFRESH_BEEP;
  const auto begin = static_cast<size_t>(std::clamp<int64_t>(found.begin, 0, static_cast<int64_t>(before.size())));
  const auto end = static_cast<size_t>(
      std::clamp<int64_t>(found.end, static_cast<int64_t>(before.size()), static_cast<int64_t>(whole.size())));
  const std::string prefix = common_prefix(found.completions);
  const std::string typed = before.substr(begin);
  const bool single = found.completions.size() == 1;
  if (prefix.size() > typed.size() || (single && prefix != typed)) {
    el_cursor(edit_, static_cast<int>(to_wide(whole.substr(before.size(), end - before.size())).size()));
    el_deletestr(edit_, static_cast<int>(to_wide(whole.substr(begin, end - begin)).size()));
    insert(prefix);
    return CC_REFRESH;
  }
  if (!single) list(found.completions);
  return CC_REFRESH;
}

/// Writes the candidates below what is typed, which is drawn again below them.
void EditLineReader::list(const std::vector<protocol::Completion>& completions) {
  const Screen screen = screen_now();
  const Position here = position_after(whole().substr(0, cursor()));
  const Position last = position_after(whole());
  std::string bytes;
  if (last.row > here.row) bytes += "\033[" + std::to_string(last.row - here.row) + "B";
  bytes += "\r\n";
  const size_t shown = std::min(completions.size(), kMostListed);
  const int width = std::max(20, screen.width);
  int name_width = 0;
  for (size_t i = 0; i < shown; ++i) name_width = std::max(name_width, text_width(completions[i].text));
  const bool with_details = shown <= 12;
  const int columns = with_details ? 1 : std::max(1, width / (name_width + 2));
  for (size_t i = 0; i < shown; ++i) {
    const protocol::Completion& completion = completions[i];
    bytes += fitting(completion.text, width - 1);
    const bool row_ends = static_cast<int>(i) % columns == columns - 1 || i + 1 == shown;
    if (with_details && !completion.detail.empty()) {
      const int left = width - 1 - name_width - 2;
      bytes += std::string(static_cast<size_t>(name_width - text_width(completion.text) + 2), ' ');
      if (left > 8) bytes += paint(screen, Style::dim, fitting(completion.detail, left));
    }
    bytes += row_ends ? "\r\n" : std::string(static_cast<size_t>(name_width - text_width(completion.text) + 2), ' ');
  }
  if (completions.size() > shown)
    bytes += std::string(signs(screen).dots) + " and " + std::to_string(completions.size() - shown) + " more\r\n";
  write(bytes);
  el_set(edit_, EL_REFRESH);
}

/// Where the cursor stands after the prompt and `text`, counted from the beginning of the prompt.
EditLineReader::Position EditLineReader::position_after(std::wstring_view text) const {
  const int width = std::max(1, screen_now().width);
  Position position{prompt_width_ / width, prompt_width_ % width};
  for (const wchar_t c : text) {
    if (c == L'\n') {
      ++position.row;
      position.column = 0;
      continue;
    }
    const int columns = c == L'\t' ? 8 - position.column % 8 : character_width(static_cast<char32_t>(c));
    if (position.column + columns > width) {
      ++position.row;
      position.column = 0;
    }
    position.column += columns;
    if (position.column >= width) {
      ++position.row;
      position.column -= width;
    }
  }
  return position;
}

void EditLineReader::hide() {
  if (!reading_) return;
  const int row = std::min(position_after(whole().substr(0, cursor())).row, std::max(0, screen_now().height - 1));
  write(row > 0 ? "\r\033[" + std::to_string(row) + "A\033[J" : "\r\033[J");
}

void EditLineReader::show() {
  if (reading_) el_set(edit_, EL_REFRESH);
}

void EditLineReader::interrupt() noexcept {
  const char what = 'i';
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &what, 1);
}

void EditLineReader::resized() noexcept {
  const char what = 'w';
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &what, 1);
}

void EditLineReader::resumed() noexcept {
  const char what = 'c';
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &what, 1);
}

}  // namespace lockstep::shell
