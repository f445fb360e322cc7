// Draws a session's events for Jupyter: streams, displays, results and errors of the request that is being answered.
//
// Lines of ranks go to the streams stdout and stderr, as in a terminal behind the ranks that wrote them. Lines that are
// not finished yet (progress bars, dots), and lines that are held until other ranks have written the same, are one
// display, which is updated in place and becomes text when they end or are merged.
// Messages are sent at most every kPeriod; the first is sent at once. A cell that writes more than kMostBytes or
// kMostLines shows the rest in a file only.
//
// It lives on the session's thread.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/events/event.h"
#include "shell/events/value_merger.h"
#include "shell/jupyter/output_limit.h"
#include "shell/processes/deadline.h"
#include "shell/terminal/rank_output.h"
#include "shell/terminal/renderer.h"

namespace lockstep::shell::jupyter {

class Display : public EventSink {
 public:
  /// Messages with output are sent no more often. It is within the 50 ms after which people see a delay.
  static constexpr std::chrono::milliseconds kPeriod{40};

  /// `publish` sends a message of iopub (type, content) under the request that is shown.
  using Publish = std::function<void(std::string_view type, nlohmann::json content)>;
  Display(EventLoop& loop, Publish publish);

  /// Says what a request wants of its outputs.
  struct Wishes {
    bool silent = false;  // nothing is published
    bool paged = false;  // messages of magics are for the pager: `net?`
    int64_t execution_count = 0;
    bool in_full = false;  // output without a limit
  };
  /// Says what came of a cell besides what has been published.
  struct Report {
    std::string error_name, error_value;  // of the first cause; empty where there was no error
    std::vector<std::string> traceback;
    std::string page;  // for the pager
    nlohmann::json result;  // the last value, as the data of an execute_result; null where there was none
  };

  /// Begins a request.
  void begin(const Wishes& wishes);
  /// Ends it: all that it wrote is published, but for its errors.
  Report end();

  void take(const Event& event) override;
  /// Takes output that `rank` has written and that is held for merging. It is shown after kHeldPeriod, until its
  /// OutputEvent comes and takes its place.
  void take_early(int rank, Stream stream, std::string_view bytes);

  /// Sets the ranks of the session.
  void set_ranks(const RankSet& ranks);

 private:
  using Clock = EventLoop::Clock;

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

  /// Lets everything that was held go out, so that what comes next stands after it.
  void flush();
  void flush_values();
  void show_values(const std::vector<ValueEvent>& values);
  void flush_output(bool is_over);
  void show_progress();
  bool holds_output() const;
  std::string held_text() const;
  void consume(const OutputEvent& event);
  void add_text(Stream stream, std::string text);
  void publish(std::string_view type, nlohmann::json content);
  std::string limited(const std::string& text);
  void publish_stream(Stream stream, const std::string& text);
  void publish_problems();
  void arm();

  const Publish publish_;
  Wishes wishes_;
  bool runs_ = false;  // between begin() and end()

  RankSet all_;  // ranks of the session
  std::map<Stream, RankOutput> lines_;
  std::vector<std::pair<Stream, std::string>> pending_;
  OutputLimit limit_;
  Clock::time_point sent_{};  // when output was sent last
  Deadline send_;

  /// Output of a rank that is held for merging.
  struct Held {
    size_t bytes = 0;
    std::string tail;  // the last of them
  };
  std::map<Stream, std::map<int, Held>> held_;
  Clock::time_point held_since_{};  // or since others' output was shown last

  std::string progress_id_;  // of the display that shows unfinished lines and held output; empty while there is none
  std::string progress_;  // what it shows
  std::map<int64_t, ProgressEvent> loops_;  // that run

  ValueMerger values_;
  Deadline values_due_;
  nlohmann::json result_;

  std::string notes_text_, problems_text_;  // what the renderers have drawn
  Renderer notes_, problems_;
  std::vector<ErrorEvent> errors_;
  CellStatus status_ = CellStatus::ok;
  std::string page_;
};

}  // namespace lockstep::shell::jupyter
