#include "shell/terminal/edit_line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shell/scripts/code_scanner.h"
#include "shell/terminal/foreground_program.h"
#include "shell/text/screen.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr const char* kIndent = "  ";
constexpr int kDeepestIndent = 40;
constexpr int kEscapeMs = 50;  // a key that sends a sequence sends it at once
constexpr size_t kMostHighlighted = 200'000;  // bytes; longer texts have no colours, so that keys stay fast

std::string_view last_line(std::string_view text) {
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\n") == std::string_view::npos; }

}  // namespace

LineReader::Input EditLineReader::read(const std::string& prompt) {
  prompt_ = prompt;
  while (terminal_.next_wake()) {  // signals that came after the last cell was taken
  }
  buffer_.reset(edit_first_.value_or(""));
  history_.begin();
  result_.reset();
  menu_.reset();
  search_.reset();
  signatures_.clear();
  signatures_of_.reset();
  signatures_for_.clear();
  prefix_key_ = was_pasted_ = hidden_ = false;
  first_row_ = 0;
  writer_.forget();
  reading_ = true;
  terminal_.begin();
  draw();
  if (std::exchange(edit_first_, std::nullopt)) {
    edit_elsewhere();
    draw();
  }
  while (!result_) {
    if (const std::optional<Key> key = keys_.next()) {
      take(*key);
      continue;
    }
    if (changed_ && !terminal_.has_input()) {
      draw();
      update_signatures();
      if (result_) break;
      if (changed_) draw();
    }
    if (!terminal_.has_input()) services_.wait(terminal_.descriptor());
    take_signals();
    if (result_) break;
    if (!take_input()) result_ = Input{End::end_of_input, ""};
  }
  menu_.reset();
  search_.reset();
  signatures_.clear();
  draw(/*is_final=*/true);
  reading_ = false;
  terminal_.end();
  Input input = std::move(*result_);
  result_.reset();
  // Ctrl-C may have come behind Enter, while somebody was asked whether the cell is whole.
  while (const std::optional<char> what = terminal_.next_wake())
    if (what == 'i' && std::exchange(input.end, End::cancelled) != End::cancelled) terminal_.write("^C\r\n");
  if (input.end == End::cell)
    while (!input.text.empty() && is_blank(input.text.substr(input.text.size() - 1))) input.text.pop_back();
  return input;
}

void EditLineReader::take_signals() {
  while (const std::optional<char> what = terminal_.next_wake()) {
    if (what == 'i') return cancel();
    if (what == 'c') {  // the shell that stopped us has changed the terminal's settings, and written below
      terminal_.begin();
      writer_.forget();
    }
    if (what == 'w') writer_.resized(detect_screen(STDOUT_FILENO).width);
    if (what == 'w' && writer_.is_shown() && !hidden_) terminal_.write(writer_.erase());
    changed_ = true;
  }
}

/// Takes what the terminal has sent. Returns false at its end. Bytes are taken one by one, as those after the end of
/// the cell belong to whoever reads next.
bool EditLineReader::take_input() {
  while (terminal_.has_input()) {
    std::string bytes;
    const Reading found = terminal_.read(bytes, keys_.is_pasting() ? 1 << 16 : 1);
    if (found != Reading::bytes) return found == Reading::empty;
    keys_.feed(bytes);
    if (const std::optional<Key> key = keys_.next()) {
      take(*key);
      if (result_) return true;
    }
    if (keys_.is_waiting() && !terminal_.has_input_within(kEscapeMs))
      if (const std::optional<Key> key = keys_.next(/*is_over=*/true)) take(*key);
    if (result_) return true;
  }
  return true;
}

// ---- The screen -----------------------------------------------------------------------------------------------------

/// `is_final` draws all of the text as it is, without the marks before its lines, to be copied from the screen.
void EditLineReader::draw(bool is_final) {
  changed_ = false;
  if (hidden_) return;
  const Screen screen = detect_screen(STDOUT_FILENO);
  EditPicture picture;
  picture.prompt = prompt_;
  picture.text = buffer_.text();
  picture.cursor = buffer_.cursor();
  if (picture.text.size() <= kMostHighlighted) picture.tokens = tokens_of(picture.text);
  std::string shown;
  if (is_final) {
    picture.limited = false;
    if (result_->end == End::cancelled) shown = buffer_.text() + "^C", picture.text = shown;
    picture.cursor = picture.text.size();
    terminal_.write(writer_.draw(frame_of(picture, screen, first_row_)) + "\r\n");
    writer_.forget();
    return;
  }
  picture.continuation = paint(screen, Style::dim, "... ");
  picture.brackets = matching_brackets(picture.text, picture.tokens, picture.cursor);
  if (search_) {
    const std::string line =
        std::string("search: ") + without_controls(search_->words()) +
        (search_->has_failed() ? "   nothing older has it"
                               : "   Ctrl-R older, Ctrl-S newer, Enter takes it, Ctrl-G goes back");
    picture.below = {
        paint(screen, search_->has_failed() ? Style::note : Style::dim, fitting(line, std::max(20, screen.width) - 1))};
  } else if (menu_) {
    picture.below = menu_->rows(screen);
  } else if (!signatures_.empty()) {
    picture.below = signature_rows(signatures_, screen);
  }
  terminal_.write(writer_.draw(frame_of(picture, screen, first_row_)));
}

void EditLineReader::hide() {
  if (!reading_ || hidden_) return;
  terminal_.write(writer_.erase());
  hidden_ = true;
}

void EditLineReader::show() {
  if (!reading_ || !hidden_) return;
  hidden_ = false;
  writer_.forget();
  draw();
}

// ---- Keys -----------------------------------------------------------------------------------------------------------

void EditLineReader::take(const Key& key) {
  changed_ = true;
  if (search_ && take_in_search(key)) return;
  if (menu_ && take_in_menu(key)) return;
  const size_t size_before = buffer_.text().size();
  const bool was_pasted = was_pasted_;
  edit(key);
  changed_ = true;  // also where it was drawn before the compiler was asked
  was_pasted_ = key.kind == Key::Kind::paste || (was_pasted && buffer_.text().size() == size_before);
}

void EditLineReader::edit(const Key& key) {
  using enum Key::Kind;
  if (std::exchange(prefix_key_, false) && key.kind == control && key.letter == 'e') return edit_elsewhere();
  if (key.kind != up && key.kind != down && !(key.kind == control && (key.letter == 'p' || key.letter == 'n')))
    history_.end_walk();
  const int half_screen = std::max(1, detect_screen(STDOUT_FILENO).height / 2);
  switch (key.kind) {
    case text:
      if (key.text == "}") return close_brace();
      return buffer_.insert(key.text);
    case paste: {
      std::string block = key.text;
      while (block.ends_with('\n')) block.pop_back();  // so that Enter runs the cell
      return buffer_.replace(buffer_.cursor(), buffer_.cursor(), block);
    }
    case control:
      return take_control(key.letter);
    case alt:
      return take_alt(key.letter);
    case enter:
      return this->enter(/*force=*/false);
    case alt_enter:
      return this->enter(/*force=*/true);
    case tab:
      return complete();
    case backspace:
      return buffer_.erase_before();
    case del:
      return buffer_.erase_at();
    case up:
      return move_line(-1);
    case down:
      return move_line(1);
    case left:
      return buffer_.move_left();
    case right:
      return buffer_.move_right();
    case home:
      return buffer_.move_to_line_begin();
    case end:
      return buffer_.move_to_line_end();
    case page_up:
      buffer_.move_lines(-half_screen);
      return;
    case page_down:
      buffer_.move_lines(half_screen);
      return;
    case word_left:
      return buffer_.move_word_left();
    case word_right:
      return buffer_.move_word_right();
    case top:
      return buffer_.move_to(0);
    case bottom:
      return buffer_.move_to(buffer_.text().size());
    case f2:
      return edit_elsewhere();
    case escape:
    case back_tab:
    case unknown:
      return;
  }
}

void EditLineReader::take_control(char letter) {
  switch (letter) {
    case 'a':
      return buffer_.move_to_line_begin();
    case 'b':
      return buffer_.move_left();
    case 'c':  // where Ctrl-C is no signal
      return cancel();
    case 'd':
      if (buffer_.text().empty()) {
        result_ = Input{End::end_of_input, ""};
        return;
      }
      return buffer_.erase_at();
    case 'e':
      return buffer_.move_to_line_end();
    case 'f':
      return buffer_.move_right();
    case 'k':
      return buffer_.cut_to_line_end();
    case 'l':
      terminal_.write("\033[H\033[2J");
      writer_.forget();
      return;
    case 'n':
      return move_line(1);
    case 'o':
      return new_line({});
    case 'p':
      return move_line(-1);
    case 'r':
    case 's':
      search_.emplace(history_, buffer_);
      signatures_.clear();
      return;
    case 'u':
      return buffer_.cut_to_line_begin();
    case 'w':
      return buffer_.cut_word_before();
    case 'x':
      prefix_key_ = true;
      return;
    case 'y':
      return buffer_.yank();
    case '_':
      buffer_.undo();
      return;
    default:
      return;
  }
}

void EditLineReader::take_alt(char letter) {
  switch (letter) {
    case 'b':
      return buffer_.move_word_left();
    case 'd':
      return buffer_.cut_word_after();
    case 'f':
      return buffer_.move_word_right();
    case '\x7f':
    case '\b':
      return buffer_.cut_word_before();
    case '_':
      buffer_.redo();
      return;
    case '<':
      return history_.show(buffer_, 0);
    case '>':
      return history_.show(buffer_, history_.size());
    default:
      return;
  }
}

void EditLineReader::cancel() {
  buffer_.move_to(buffer_.text().size());
  keys_.clear();
  result_ = Input{End::cancelled, buffer_.text()};
}

void EditLineReader::enter(bool force) {
  draw();  // a rank may be asked, and what was typed is seen before
  const std::string& text = buffer_.text();
  const bool on_last_line = buffer_.on_last_line();
  const bool empty_last_line = on_last_line && text.find('\n') != std::string::npos && is_blank(last_line(text));
  Completeness found{TextStatus::complete, 0};
  if (!force && !empty_last_line && !is_blank(text)) {
    found = services_.completeness(on_last_line ? text : std::string(buffer_.before_cursor()), was_pasted_);
    take_signals();  // Ctrl-C that gave the question up
    if (result_) return;
    if (!on_last_line) found.status = TextStatus::incomplete;
  }
  if (found.status == TextStatus::incomplete)
    new_line(buffer_.cursor() == text.size() || !on_last_line ? std::optional(found.indent) : std::nullopt);
  else
    result_ = Input{End::cell, text};
}

void EditLineReader::new_line(std::optional<int> indent) {
  const int depth =
      indent ? *indent : services_.completeness(std::string(buffer_.before_cursor()), /*is_pasted=*/false).indent;
  std::string line = "\n";
  for (int i = 0; i < std::min(depth, kDeepestIndent); ++i) line += kIndent;
  buffer_.insert(line);
}

/// A brace that closes a block goes back to where the block began.
void EditLineReader::close_brace() {
  const std::string_view before = buffer_.before_cursor();
  const std::string_view line = last_line(before);
  if (!line.empty() && is_blank(line) && line.ends_with(kIndent) && line.size() < before.size())
    return buffer_.replace(buffer_.cursor() - std::strlen(kIndent), buffer_.cursor(), "}");
  buffer_.insert("}");
}

// ---- Completion -----------------------------------------------------------------------------------------------------

void EditLineReader::complete() {
  if (is_blank(last_line(buffer_.before_cursor()))) return buffer_.insert(kIndent);
  draw();
  const auto cursor = static_cast<int64_t>(buffer_.cursor());
  const protocol::Completions found = services_.complete(buffer_.text(), cursor);
  if (result_ || found.completions.empty()) return;
  menu_begin_ = static_cast<size_t>(std::clamp<int64_t>(found.begin, 0, cursor));
  menu_end_ = static_cast<size_t>(std::clamp<int64_t>(found.end, cursor, static_cast<int64_t>(buffer_.text().size())));
  menu_typed_ = buffer_.text().substr(menu_begin_, menu_end_ - menu_begin_);
  CandidateMenu menu(found.completions);
  const std::string prefix = menu.common_prefix();
  const bool is_more = prefix.size() > menu_typed_.size() || (menu.size() == 1 && prefix != menu_typed_);
  if (is_more) {
    buffer_.replace(menu_begin_, menu_end_, prefix);
    return;
  }
  if (menu.size() > 1) menu_ = std::move(menu);
}

bool EditLineReader::take_in_menu(const Key& key) {
  using enum Key::Kind;
  const bool was_selected = menu_->selected().has_value();
  switch (key.kind) {
    case tab:
      menu_->select_next(1);
      show_candidate();
      return true;
    case back_tab:
      menu_->select_next(-1);
      show_candidate();
      return true;
    case down:
    case right:
    case up:
    case left:
      if (!was_selected) break;
      menu_->select_next(key.kind == down || key.kind == right ? 1 : -1);
      show_candidate();
      return true;
    case enter:
      menu_.reset();
      return was_selected;
    case escape:
      if (was_selected) buffer_.replace(menu_begin_, menu_end_, menu_typed_);
      menu_.reset();
      return true;
    default:
      break;
  }
  menu_.reset();
  return false;
}

/// The selected candidate stands in the text.
void EditLineReader::show_candidate() {
  const std::string& text = menu_->text(*menu_->selected());
  buffer_.replace(menu_begin_, menu_end_, text);
  menu_end_ = menu_begin_ + text.size();
}

/// Asks for the overloads of the call that the cursor is in, once for each of its arguments.
void EditLineReader::update_signatures() {
  if (!services_.signatures || menu_ || search_ || buffer_.text().size() > kMostHighlighted) return;
  const std::string& text = buffer_.text();
  const std::optional<size_t> open = open_call(std::string_view(text).substr(0, buffer_.cursor()));
  if (!open) {
    if (!signatures_.empty()) changed_ = true;
    signatures_.clear();
    signatures_of_.reset();
    return;
  }
  // Only a bracket or a comma begins another argument.
  const size_t comma = std::string_view(text).substr(0, buffer_.cursor()).find_last_of(",()");
  const std::string asked = text.substr(0, comma == std::string::npos ? 0 : comma + 1);
  if (signatures_of_ == open && signatures_for_ == asked) return;
  signatures_of_ = open;
  signatures_for_ = asked;
  std::vector<protocol::Signature> found = services_.signatures(asked, static_cast<int64_t>(asked.size()));
  changed_ = changed_ || !found.empty() || !signatures_.empty();
  signatures_ = std::move(found);
}

// ---- History --------------------------------------------------------------------------------------------------------

void EditLineReader::remember(const std::string& text) {
  if (const std::string problem = history_.add(text); !problem.empty())
    terminal_.write("the history is not kept: " + without_controls(problem) + "; see XDG_STATE_HOME\n");
}

/// Moves to the same column of the line above or below; from the first or last line on, through the history.
void EditLineReader::move_line(int direction) {
  if (history_.is_walking() || !buffer_.move_lines(direction)) history_.walk(buffer_, direction);
}

bool EditLineReader::take_in_search(const Key& key) {
  const HistorySearch::Took took = search_->take(key);
  if (took != HistorySearch::Took::key) search_.reset();
  return took != HistorySearch::Took::nothing;
}

// ---- Another editor -------------------------------------------------------------------------------------------------

void EditLineReader::edit_elsewhere() {
  terminal_.write(writer_.erase());
  terminal_.end();
  const std::optional<std::string> edited = edit_in_editor(buffer_.text());
  terminal_.begin();
  writer_.forget();
  if (edited)
    buffer_.set(*edited);
  else
    terminal_.write("the editor '" + editor_command() + "' failed; set EDITOR to another one\n");
}

}  // namespace lockstep::shell
