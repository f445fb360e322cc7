#include "shell/terminal/edit_view.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr int kTab = 4;

/// Puts characters into rows of the screen, in the colours of their tokens.
class RowBuilder {
 public:
  RowBuilder(const EditPicture& picture, const Screen& screen)
      : picture_(picture), screen_(screen), width_(std::max(2, screen.width > 0 ? screen.width : 80)) {}

  Frame run() {
    begin(picture_.prompt);
    const std::string_view text = picture_.text;
    for (size_t at = 0; at < text.size();) {
      if (at == picture_.cursor) mark_cursor();
      const Character character = first_character(text.substr(at));
      if (character.code == '\n') {
        set_style(Style::plain);
        rows_.push_back({});
        begin(picture_.continuation);
      } else if (character.code == '\t') {
        const int columns = kTab - rows_.back().width % kTab;
        for (int k = 0; k < columns; ++k) put(" ", 1, Style::plain);
      } else if (character.code < 32 || character.code == 127) {
        put(std::string("^") + static_cast<char>(character.code ^ 64), 2, Style::dim);
      } else {
        put(without_controls(text.substr(at, character.bytes)), character_width(character.code), style_at(at));
      }
      at += character.bytes;
    }
    set_style(Style::plain);
    if (picture_.cursor >= text.size()) mark_cursor();
    frame_.rows = std::move(rows_);
    return std::move(frame_);
  }

 private:
  void begin(const std::string& prompt) {
    if (rows_.empty()) rows_.push_back({});
    rows_.back().bytes += prompt;
    rows_.back().width += text_width(prompt);
    // The prompt leaves no room: the text begins below it.
    if (rows_.back().width >= width_) rows_.push_back({});
  }

  void put(std::string_view bytes, int columns, Style style) {
    if (rows_.back().width + columns > width_) {
      set_style(Style::plain);
      rows_.push_back({});
      // The cursor stood at the end of a full row: it is where the next character goes.
      if (cursor_is_last_) frame_.cursor_row = rows_.size() - 1, frame_.cursor_column = 0;
    }
    cursor_is_last_ = false;
    set_style(style);
    rows_.back().bytes += bytes;
    rows_.back().width += columns;
  }

  void mark_cursor() {
    if (rows_.back().width >= width_) {
      set_style(Style::plain);
      rows_.push_back({});
    }
    frame_.cursor_row = rows_.size() - 1;
    frame_.cursor_column = rows_.back().width;
    cursor_is_last_ = true;
  }

  Style style_at(size_t at) {
    if (picture_.brackets && (picture_.brackets->first == at || picture_.brackets->second == at)) return Style::bracket;
    while (token_ < picture_.tokens.size() && picture_.tokens[token_].end <= at) ++token_;
    if (token_ < picture_.tokens.size() && picture_.tokens[token_].begin <= at) return picture_.tokens[token_].style;
    return Style::plain;
  }

  void set_style(Style style) {
    if (style == style_ || !screen_.colour) return;
    const auto opening = [&](Style each) {
      const std::string painted = paint(screen_, each, "x");
      return painted.substr(0, painted.find('x'));
    };
    if (style_ != Style::plain) rows_.back().bytes += "\033[0m";
    if (style != Style::plain) rows_.back().bytes += opening(style);
    style_ = style;
  }

  const EditPicture& picture_;
  const Screen& screen_;
  const int width_;
  std::vector<Row> rows_;
  Frame frame_;
  size_t token_ = 0;
  Style style_ = Style::plain;
  bool cursor_is_last_ = false;
};

Row mark(const Screen& screen, const char* where, size_t count) {
  const std::string text = std::string(signs(screen).dots) + " " + std::to_string(count) + " more " +
                           (count == 1 ? "line " : "lines ") + where;
  const std::string fits(fitting(text, std::max(1, screen.width)));
  return {paint(screen, Style::dim, fits), text_width(fits)};
}

}  // namespace

Frame frame_of(const EditPicture& picture, const Screen& screen, size_t& first_row) {
  Frame frame = RowBuilder(picture, screen).run();
  const auto height = static_cast<size_t>(std::max(3, screen.height));
  std::vector<std::string> below = picture.below;
  if (below.size() > height / 2) below.resize(height / 2);
  const size_t room = height - below.size();
  if (!picture.limited || frame.rows.size() <= room) {
    first_row = 0;
  } else {
    // The marks take a row each, which is not the cursor's.
    const size_t last_first = frame.rows.size() - room;
    if (frame.cursor_row < first_row + 1) first_row = frame.cursor_row == 0 ? 0 : frame.cursor_row - 1;
    if (frame.cursor_row + 2 > first_row + room) first_row = frame.cursor_row + 2 - room;
    first_row = std::min(first_row, last_first);
    if (room > 2) {
      if (first_row > 0) frame.rows[first_row] = mark(screen, "above", first_row + 1);
      if (first_row < last_first)
        frame.rows[first_row + room - 1] = mark(screen, "below", frame.rows.size() - first_row - room + 1);
    }
    frame.rows.erase(frame.rows.begin() + static_cast<ptrdiff_t>(first_row + room), frame.rows.end());
    frame.rows.erase(frame.rows.begin(), frame.rows.begin() + static_cast<ptrdiff_t>(first_row));
    frame.cursor_row -= first_row;
  }
  for (std::string& each : below) {
    const int width = text_width(each);
    frame.rows.push_back({std::move(each), width});
  }
  return frame;
}

std::string FrameWriter::to_top() const {
  return shown_.cursor_row > 0 ? "\r\033[" + std::to_string(shown_.cursor_row) + "A" : "\r";
}

std::string FrameWriter::draw(Frame frame) {
  std::string bytes = to_top();
  for (size_t i = 0; i < frame.rows.size(); ++i) {
    if (i > 0) bytes += "\r\n";
    const bool was_there = known_ && i < shown_.rows.size();
    if (was_there && shown_.rows[i] == frame.rows[i]) continue;
    if (was_there) bytes += "\033[K";  // before the text: after a full row it would take the last character away
    bytes += frame.rows[i].bytes;
  }
  if (known_ && shown_.rows.size() > frame.rows.size()) bytes += (frame.rows.empty() ? "\033[J" : "\r\n\033[J\033[1A");
  const size_t up = frame.rows.size() - 1 - std::min(frame.cursor_row, frame.rows.size() - 1);
  bytes += "\r";
  if (up > 0) bytes += "\033[" + std::to_string(up) + "A";
  if (frame.cursor_column > 0) bytes += "\033[" + std::to_string(frame.cursor_column) + "C";
  shown_ = std::move(frame);
  known_ = true;
  return bytes;
}

std::string FrameWriter::erase() {
  if (!known_) return "";
  const std::string bytes = to_top() + "\033[J";
  forget();
  return bytes;
}

void FrameWriter::resized(int columns) {
  if (!known_ || columns <= 0) return;
  size_t above = 0;
  for (size_t i = 0; i < shown_.cursor_row && i < shown_.rows.size(); ++i)
    above += static_cast<size_t>(std::max(1, (shown_.rows[i].width + columns - 1) / columns));
  above += static_cast<size_t>(shown_.cursor_column / columns);
  shown_.cursor_row = above;
}

}  // namespace lockstep::shell
