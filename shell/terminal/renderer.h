// Draws a session's events for people: on a terminal with colours and progress in place, in a file or a pipe as plain
// lines.
//
// What several ranks say alike is there once, behind its ranks; what differs is in rank order. The errors of a cell
// come at its end, those that follow from another first and the cause last, where the eye is; until then a terminal
// shows them in a row at the bottom.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shell/events/event.h"
#include "shell/terminal/rank_output.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

class Renderer : public EventSink {
 public:
  using Write = std::function<void(std::string_view)>;

  /// `write` gets whole pieces of what is drawn, at least one for each event that shows.
  Renderer(const Screen& screen, Write write);

  void take(const Event& event) override;

  /// Draws the line that a cell begins with in a transcript: `In [7] ranks 0-3 ▸ title, or first line`.
  void begin_cell(int64_t cell, const RankSet& ranks, const std::string& title, const std::string& text);

  /// Shows `text` as it is, with its colours: it is the front end's own.
  void show(const std::string& text);

  /// Ends unfinished lines and draws the errors that are held: the cell is over, or a prompt comes next.
  void flush();

  /// Sets the ranks of a session whose start is not drawn: how wide their names are.
  void set_ranks(const RankSet& ranks) { output_.set_ranks(ranks); }
  /// Sets whether there is a prompt, at which a value can be asked for again.
  void set_prompt(bool has_prompt) { has_prompt_ = has_prompt; }
  /// Makes what takes long one row instead of one for each set of ranks.
  void set_brief(bool brief) { brief_ = brief; }
  /// Turns drawing in place off while a prompt is on the screen: unfinished lines wait for their ends.
  void set_live(bool live);
  /// Takes another size of the terminal.
  void set_screen(const Screen& screen);
  /// Draws what belongs at the bottom again: the screen is another one, which has nothing of it.
  void draw_bottom_again();
  /// Whether what is being written is output of ranks, which a display that is behind may drop after an interrupt.
  bool draws_output() const { return draws_output_; }
  /// Notes that the display has dropped `bytes` of output: it says so at once, shows no more of the ranks' output until
  /// the cell is over, and how much that was then.
  void drop_output(size_t bytes);
  /// Leaves out notes, states of ranks and the start of the session; output, values, errors and faults stay.
  void set_quiet(bool quiet) { quiet_ = quiet; }

 private:
  struct RanksSaid {  // the same message of one or more RankEvents
    std::string message;
    RankSet ranks;
  };
  static void add(std::vector<RanksSaid>& said, const RankEvent& event);

  void draw(const SessionEvent& event);
  void draw(const CellEvent& event);
  void draw(const OutputEvent& event);
  void draw(const ValueEvent& event);
  void draw(const ErrorEvent& event);
  void draw(const FindingEvent& event);
  void draw(const RankEvent& event);
  void draw(const MessageEvent& event);
  void draw(const MarkdownEvent& event);
  void draw(const EndEvent& event);
  void draw(const ProgressEvent& event);
  void draw(const PageEvent& event);
  void draw(const ActivityEvent& event);
  void draw_errors();
  void draw_deaths();
  void draw_waits();
  std::string line_of(Style style, const char* sign, const RanksSaid& said, int columns = 0) const;
  void draw_dropped();
  void draw_error(const ErrorEvent& error);
  std::string head_of(const ErrorEvent& error) const;
  void put();
  std::string bottom_rows(size_t& rows) const;
  std::vector<std::string> status_rows() const;

  Screen screen_;
  Write write_;
  RankOutput output_;
  std::vector<ErrorEvent> errors_;  // of the running cell
  std::vector<RanksSaid> deaths_;  // that no error has explained yet
  std::vector<RanksSaid> waits_;  // that are not drawn yet
  size_t drawn_waits_ = 0;  // of the running cell
  std::vector<std::string> reported_deaths_;  // while others ran on: the heads of their errors
  struct RunningLoop {
    ProgressEvent event;
    std::chrono::steady_clock::time_point since;
  };
  std::map<int64_t, RunningLoop> loops_;  // by number, so that a loop is above those in it
  ActivityEvent activity_;
  std::string drawn_;  // what the event at hand adds above the bottom rows
  std::string bottom_;  // bottom rows that stand on the screen
  size_t bottom_rows_ = 0;
  bool draws_output_ = false, dropping_ = false;
  size_t dropped_ = 0;  // bytes
  bool live_ = true;
  bool has_prompt_ = false;
  bool quiet_ = false;
  bool brief_ = false;
};

/// Returns `In [7] ranks 0-3 ▸ `, or `In [ ] …` for a cell without a number; coloured as the screen allows.
std::string prompt_text(int64_t cell, const RankSet& ranks, const Screen& screen);
/// Returns `In [7] label ▸ `, or `In [7] ▸ ` without a label.
std::string prompt_text(int64_t cell, const std::string& label, const Screen& screen);

}  // namespace lockstep::shell
