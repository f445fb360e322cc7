// Draws the ranks' output as people read it: whole lines, each behind the ranks that wrote it, `0-2 │ loss 0.5`. What
// several ranks write alike is one line. On a terminal the lines that are not finished yet stay at the bottom and are
// drawn again as they grow, so that the progress bars of several ranks move in place; elsewhere a line is written once
// it is complete.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/status.h"
#include "shell/terminal/line_buffer.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

class RankOutput {
 public:
  explicit RankOutput(const Screen& screen) : screen_(screen) {}

  void set_screen(const Screen& screen) { screen_ = screen; }
  /// Sets the ranks of the session: the gutter is wide enough for all, and absent where there is only one.
  void set_ranks(const RankSet& ranks);

  /// Adds to `drawn` the lines that `bytes` complete.
  void append(const RankSet& ranks, Stream stream, std::string_view bytes, std::string& drawn);
  /// Adds all unfinished lines as if they had ended: the cell is over.
  void finish(std::string& drawn);

  /// Forgets all unfinished lines.
  void clear() { lines_.clear(); }

  /// Returns unfinished lines, each cut to one row of the screen, in rank order.
  std::vector<std::string> unfinished() const;

  /// Returns what goes before a line of output of these ranks: `0-2 │ `, nothing in a session of one rank.
  std::string output_gutter(const RankSet& ranks) const { return gutter(ranks, Stream::standard_output); }
  /// Returns what goes before each line of a value of these ranks: `0-2 = `.
  std::string value_gutter(const RankSet& ranks) const;

 private:
  /// Has ranks whose unfinished lines are the same so far. Those may be long: it is that of the first of them.
  struct Group {
    RankSet ranks;
    Stream stream;
    const LineBuffer* line;
  };
  /// Returns `0-2 │ ` for a line on stdout, `0-2 ┊ ` for one on stderr, nothing in a session of one rank.
  std::string gutter(const RankSet& ranks, Stream stream) const;
  std::string label(const RankSet& ranks) const;
  static void add(std::vector<Group>& groups, Stream stream, int rank, const LineBuffer& line);
  void draw(const RankSet& ranks, Stream stream, std::string_view line, std::string& drawn) const;
  std::string printable(std::string_view line) const;

  Screen screen_;
  RankSet all_;
  size_t gutter_width_ = 1;
  std::map<Stream, std::map<int, LineBuffer>, std::greater<>> lines_;  // stream → rank → its unfinished line
};

}  // namespace lockstep::shell
