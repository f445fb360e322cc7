// Editing on a terminal, with libedit: several lines at once, history, completion, pasted blocks.
//
//   Enter           takes a complete cell; otherwise begins a new line, indented. On an empty last line: takes the
//                   text, complete or not
//   Alt-Enter       takes the text, complete or not
//   Tab             completes; at the beginning of a line: indents
//   Up, Down        lines of the cell, then the history; Ctrl-R searches it
//   Ctrl-C          throws away what is typed;   Ctrl-D on an empty line: the end
// A pasted block (bracketed paste) goes into the cell unchanged. Further keys are those of .editrc and of emacs.
#pragma once
#include <histedit.h>

#include <string>
#include <vector>

#include "shell/terminal/history_file.h"
#include "shell/terminal/line_reader.h"

namespace lockstep::shell {

class EditLineReader : public LineReader {
 public:
  /// Standard input and output must be a terminal. Throws StartError where libedit can't work with it.
  EditLineReader(LineReaderServices services, HistoryFile history);
  ~EditLineReader() override;

  Input read(const std::string& prompt) override;
  void hide() override;
  void show() override;
  void remember(const std::string& text) override;
  void interrupt() noexcept override;
  void set_prompt(const std::string& prompt) override;
  void type_ahead(const std::string& bytes) override { typed_ahead_ += bytes; }
  /// From a signal handler: the terminal has another size, or the program goes on after it was stopped.
  void resized() noexcept;
  void resumed() noexcept;

 private:
  struct Keys;  // the functions that keys are bound to
  friend struct Keys;

  struct Position {
    int row = 0, column = 0;
  };

  std::string text() const;
  std::string text_before_cursor() const;
  std::wstring_view whole() const;
  size_t cursor() const;
  size_t line_begin() const;
  size_t line_end() const;
  Position position_after(std::wstring_view text) const;
  int read_character(wchar_t* character);
  ssize_t read_byte(char* byte);
  void accept();
  void insert(const std::string& text);
  unsigned char enter(bool force);
  unsigned char paste();
  unsigned char complete();
  unsigned char move_line(int direction);
  unsigned char move_to(size_t target);
  void list(const std::vector<protocol::Completion>& completions);
  void write(const std::string& bytes) const;

  LineReaderServices services_;
  HistoryFile file_;
  EditLine* edit_ = nullptr;
  HistoryW* history_ = nullptr;
  int wake_[2] = {-1, -1};  // a signal handler writes a letter: what happened
  int wait_ = -1;  // epoll over the terminal and wake_
  std::wstring prompt_;
  int prompt_width_ = 0;
  std::string typed_ahead_;
  std::string last_;  // newest entry of the history
  bool cancelled_ = false;
  std::string cancelled_text_;
  bool reading_ = false;
  bool file_works_ = true;
};

}  // namespace lockstep::shell
