// Edits on a terminal: cells of several lines with colours, history, completion and signatures, pasted blocks.
//
//   Enter           takes a complete cell; otherwise begins a new line, indented. On an empty last line: takes the
//                   text, complete or not
//   Alt-Enter       takes the text, complete or not;     Ctrl-O   begins a new line
//   Tab             completes; again: selects the next candidate; at the beginning of a line: indents
//   Up, Down        lines of the cell, then cells of the history that begin with what was typed
//   Ctrl-R          searches the history;                F2, Ctrl-X Ctrl-E   opens the text in $EDITOR
//   Ctrl-C          throws away what is typed;           Ctrl-D   on an empty line: the end
// Further keys are those of emacs and readline; docs/terminal.md lists them. The editor owns its rows of the screen:
// what is drawn meanwhile comes above them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shell/terminal/candidate_menu.h"
#include "shell/terminal/cell_history.h"
#include "shell/terminal/edit_buffer.h"
#include "shell/terminal/edit_view.h"
#include "shell/terminal/history_search.h"
#include "shell/terminal/key_decoder.h"
#include "shell/terminal/line_reader.h"
#include "shell/terminal/raw_terminal.h"

namespace lockstep::shell {

class EditLineReader : public LineReader {
 public:
  /// Standard input and output must be a terminal. Throws StartError where it can't be waited for.
  EditLineReader(LineReaderServices services, HistoryFile history)
      : services_(std::move(services)), history_(std::move(history)) {}

  Input read(const std::string& prompt) override;
  void hide() override;
  void show() override;
  void remember(const std::string& text) override;
  void interrupt() noexcept override { terminal_.wake('i'); }
  void set_prompt(const std::string& prompt) override { prompt_ = prompt; }
  void type_ahead(const std::string& bytes) override { keys_.feed(bytes); }
  void end_ahead() override { keys_.feed("\x04"); }
  std::string take_ahead() override { return ""; }
  /// Makes the next read() begin in $EDITOR with this text (%edit).
  void edit_first(const std::string& text) { edit_first_ = text; }
  /// Notes that the terminal has another size, or the program goes on after it was stopped. From a signal handler.
  void resized() noexcept { terminal_.wake('w'); }
  void resumed() noexcept { terminal_.wake('c'); }

 private:
  bool take_input();
  void take_signals();
  void draw(bool is_final = false);

  void take(const Key& key);
  void edit(const Key& key);
  void take_control(char letter);
  void take_alt(char letter);
  bool take_in_menu(const Key& key);
  bool take_in_search(const Key& key);
  void enter(bool force);
  void cancel();
  void new_line(std::optional<int> indent);  // of the next line; nothing: by the text before the cursor
  void close_brace();
  void complete();
  void show_candidate();
  void move_line(int direction);
  void update_signatures();
  void edit_elsewhere();

  LineReaderServices services_;
  RawTerminal terminal_;

  std::string prompt_;
  std::optional<std::string> edit_first_;
  EditBuffer buffer_;
  KeyDecoder keys_;
  FrameWriter writer_;
  size_t first_row_ = 0;
  bool changed_ = false;  // since it was drawn
  bool reading_ = false, hidden_ = false;
  std::optional<Input> result_;
  bool prefix_key_ = false;  // Ctrl-X
  bool was_pasted_ = false;  // the last change

  CellHistory history_;
  std::optional<HistorySearch> search_;

  std::optional<CandidateMenu> menu_;
  size_t menu_begin_ = 0, menu_end_ = 0;  // what the candidates replace
  std::string menu_typed_;  // what stood there
  std::vector<protocol::Signature> signatures_;
  std::optional<size_t> signatures_of_;  // the parenthesis of the call
  std::string signatures_for_;  // text up to the cursor that they were asked for
};

}  // namespace lockstep::shell
