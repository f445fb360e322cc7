#include "shell/jupyter/display.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "protocol/chart.h"
#include "shell/events/shown_event.h"
#include "shell/jupyter/displayed_data.h"
#include "shell/jupyter/replies.h"
#include "shell/processes/random_key.h"
#include "shell/terminal/status_text.h"
#include "shell/text/text.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

/// Values of some ranks wait so long for those of others, so that they are one result. The end of the cell, or any
/// output, is the end of it as well.
constexpr std::chrono::milliseconds kValuesHold{1000};
/// Output that is held so long for merging is shown on trial. Ranks in step mostly write the same within it.
constexpr std::chrono::milliseconds kHeldPeriod{30};
constexpr size_t kMostHeld = 8 << 10;  // bytes of a rank that are shown on trial
constexpr size_t kMostHeldLines = 40;

const char* name_of(Stream stream) { return stream == Stream::standard_error ? "stderr" : "stdout"; }

/// Shows output of ranks: lines as they are, colours of the ranks' own only.
Screen output_screen() { return {.terminal = true, .colour = false, .unicode = true, .width = 0}; }
Screen note_screen() { return {.terminal = false, .colour = false, .unicode = true, .width = kPageColumns}; }
/// Frontends draw errors on a background of their own, red or pink, on which colours can't be read: weight stands for
/// them.
Screen problem_screen() {
  return {.terminal = false, .colour = true, .weight_only = true, .unicode = true, .width = kPageColumns};
}

}  // namespace

Display::Display(EventLoop& loop, Publish publish)
    : publish_(std::move(publish)),
      send_(loop),
      values_([this](const std::vector<ValueEvent>& values) { show_values(values); }),
      values_due_(loop),
      notes_(note_screen(), [this](std::string_view text) { notes_text_ += text; }),
      problems_(problem_screen(), [this](std::string_view text) { problems_text_ += text; }) {
  for (const Stream stream : {Stream::standard_output, Stream::standard_error}) lines_.emplace(stream, output_screen());
}

void Display::begin(const Wishes& wishes) {
  flush();
  wishes_ = wishes;
  runs_ = true;
  limit_.begin();
  held_.clear();
  loops_.clear();  // of a cell that is still open: they report themselves again
  progress_id_.clear();  // the display of a cell that has shown enough
  progress_.clear();
  result_ = nullptr;
  errors_.clear();
  problems_text_.clear();
  status_ = CellStatus::ok;
  page_.clear();
}

Display::Report Display::end() {
  flush();
  flush_output(/*is_over=*/true);
  if (limit_.is_cut()) publish("stream", {{"name", "stdout"}, {"text", limit_.end_text()}});
  problems_.flush();
  Report report;
  report.page = std::move(page_);
  report.result = std::move(result_);
  for (const std::string_view line : lines_of(problems_text_)) report.traceback.emplace_back(line);
  problems_text_.clear();
  const auto cause =
      std::find_if(errors_.rbegin(), errors_.rend(), [](const ErrorEvent& error) { return error.root_cause; });
  if (cause != errors_.rend()) {
    report.error_name = cause->type;
    report.error_value = cause->ranks.empty() || cause->type == "compile_error" ? "" : cause->ranks.words() + ": ";
    report.error_value += first_line(cause->message);
  } else if (!errors_.empty()) {
    report.error_name = errors_.back().type;
    report.error_value = first_line(errors_.back().message);
  }
  runs_ = false;
  return report;
}

void Display::take(const Event& event) {
  const bool is_beside_output =
      std::holds_alternative<ProgressEvent>(event) || std::holds_alternative<ActivityEvent>(event);
  if (!std::holds_alternative<ValueEvent>(event) && !is_beside_output) flush_values();
  if (const auto* output = std::get_if<OutputEvent>(&event))
    draw(*output);
  else
    std::visit([this](const auto& e) { draw(e); }, shown(event));
  if (!runs_) {
    problems_.flush();
    publish_problems();
  }
}

void Display::set_ranks(const RankSet& ranks) {
  all_ = ranks;
  values_.set_ranks(ranks);
  for (auto& [stream, lines] : lines_) lines.set_ranks(ranks);
}

// ---- Events ---------------------------------------------------------------------------------------------------------

void Display::draw(const SessionEvent& event) {
  set_ranks(event.ranks);
  notes_.take(event);
  add_text(Stream::standard_output, std::exchange(notes_text_, {}));
}

void Display::draw(const CellEvent& event) {
  status_ = event.status;
  problems_.take(event);
}

void Display::draw(const OutputEvent& event) {
  consume(event);
  std::string drawn;
  lines_.at(event.stream).append(event.ranks, event.stream, event.bytes, drawn);
  add_text(event.stream, std::move(drawn));
  arm();
}

void Display::take_early(int rank, Stream stream, std::string_view bytes) {
  if (!runs_ || wishes_.silent || limit_.is_cut()) return;
  if (!holds_output()) held_since_ = Clock::now();
  Held& held = held_[stream][rank];
  held.bytes += bytes.size();
  held.tail += bytes;
  if (held.tail.size() > 2 * kMostHeld) held.tail.erase(0, held.tail.size() - kMostHeld);
  arm();
}

bool Display::holds_output() const {
  return std::any_of(held_.begin(), held_.end(), [](const auto& ranks) {
    return std::any_of(ranks.second.begin(), ranks.second.end(),
                       [](const auto& each) { return each.second.bytes > 0; });
  });
}

/// The event has come for which the output of its ranks was held.
void Display::consume(const OutputEvent& event) {
  const auto found = held_.find(event.stream);
  if (found == held_.end()) return;
  for (const int rank : event.ranks) {
    Held& held = found->second[rank];
    held.bytes -= std::min(held.bytes, event.bytes.size());
    if (held.tail.size() > held.bytes) held.tail.erase(0, held.tail.size() - held.bytes);
  }
  held_since_ = Clock::now();
}

/// Returns output that is held for merging, as it would be shown now: its last lines.
std::string Display::held_text() const {
  std::string text;
  for (const auto& [stream, ranks] : held_) {
    RankOutput lines = lines_.at(stream);
    std::string drawn;
    std::vector<std::pair<RankSet, std::string_view>> groups;
    for (const auto& [rank, held] : ranks) {
      if (held.tail.empty()) continue;
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.second == held.tail; });
      if (same != groups.end())
        same->first.insert(rank);
      else
        groups.emplace_back(RankSet{rank}, held.tail);
    }
    for (const auto& [group, tail] : groups) lines.append(group, stream, tail, drawn);
    for (const std::string& row : lines.unfinished()) drawn += row + "\n";
    text += drawn;
  }
  const std::vector<std::string_view> rows = lines_of(text);
  std::string last;
  for (size_t i = rows.size() > kMostHeldLines ? rows.size() - kMostHeldLines : 0; i < rows.size(); ++i)
    last += (last.empty() ? "" : "\n") + std::string(rows[i]);
  return last;
}

void Display::draw(const ValueEvent& event) {
  values_.add(event);
  if (values_.holds_any())
    values_due_.set_after(kValuesHold, [this] { flush_values(); });
  else
    values_due_.cancel();
}

void Display::draw(const ErrorEvent& event) {
  errors_.push_back(event);
  problems_.take(event);
  if (event.others_run) publish_problems();
}

void Display::draw(const FindingEvent& event) {
  flush();
  publish("display_data",
          {{"data", finding_data(event.finding)}, {"metadata", json::object()}, {"transient", json::object()}});
}

void Display::draw(const RankEvent& event) {
  if (event.state == RankState::dead) {
    problems_.take(event);
    return;
  }
  notes_.take(event);
  add_text(Stream::standard_error, std::exchange(notes_text_, {}));
}

void Display::draw(const MessageEvent& event) {
  if (event.data.is_object() && event.data.contains("clear_output")) {
    flush();
    progress_id_.clear();
    publish("clear_output", {{"wait", flag_of(event.data["clear_output"], "wait", false)}});
    return;
  }
  notes_.take(event);
  if (wishes_.paged && runs_)
    page_ += std::exchange(notes_text_, {});
  else
    add_text(Stream::standard_output, std::exchange(notes_text_, {}));
}

void Display::draw(const MarkdownEvent& event) {
  flush();
  publish("display_data", {{"data", {{"text/markdown", event.text}, {"text/plain", event.text}}},
                           {"metadata", json::object()},
                           {"transient", json::object()}});
}

void Display::draw(const EndEvent&) {}

void Display::draw(const ProgressEvent& event) {
  if (event.state == LoopState::running) {
    loops_[event.loop] = event;
    arm();
    return;
  }
  loops_.erase(event.loop);
  notes_.take(event);
  add_text(Stream::standard_output, std::exchange(notes_text_, {}));
}

void Display::draw(const PageEvent& event) { page_ += event.text; }

void Display::draw(const ActivityEvent&) {}  // a notebook has a mark at the cell that runs

// ---- What goes out --------------------------------------------------------------------------------------------------

void Display::publish(std::string_view type, json content) {
  if (!(runs_ && wishes_.silent)) publish_(type, std::move(content));
}

void Display::flush() {
  flush_values();
  flush_output(/*is_over=*/false);
}

void Display::flush_values() {
  values_due_.cancel();
  values_.flush();
}

/// Shows the k-th values of ranks, as one result.
void Display::show_values(const std::vector<ValueEvent>& values) {
  flush_output(/*is_over=*/true);
  if (std::ranges::all_of(values, [](const ValueEvent& each) { return !rich_data(each).is_null(); })) {
    for (const ValueEvent& value : values) {
      if (value.ranks != all_) {
        const std::string whose = value.ranks.words();
        publish("display_data", {{"data", {{"text/plain", whose}, {"text/html", "<small>" + whose + "</small>"}}},
                                 {"metadata", json::object()},
                                 {"transient", json::object()}});
      }
      publish("display_data",
              {{"data", rich_data(value)}, {"metadata", json::object()}, {"transient", json::object()}});
    }
    return;
  }
  json data = value_data(values, all_);
  result_ = data;
  publish("execute_result",
          {{"execution_count", wishes_.execution_count}, {"data", std::move(data)}, {"metadata", json::object()}});
  if (result_.contains(kChartMime)) return;
  json chart = chart_data(values, all_);
  if (!chart.is_null())
    publish("display_data", {{"data", std::move(chart)}, {"metadata", json::object()}, {"transient", json::object()}});
}

void Display::add_text(Stream stream, std::string text) {
  if (text.empty()) return;
  if (!pending_.empty() && pending_.back().first == stream)
    pending_.back().second += text;
  else
    pending_.emplace_back(stream, std::move(text));
  arm();
}

/// Sends output now, or a period after the last; unfinished lines may end soon, and wait for a period.
void Display::arm() {
  const auto now = Clock::now();
  if (!pending_.empty() && now >= sent_ + kPeriod) {
    flush_output(/*is_over=*/false);
    return;
  }
  if (!send_.is_set())
    send_.set(std::max(now, sent_) + kPeriod, [this] {
      flush_output(/*is_over=*/false);
      show_progress();
    });
}

/// `is_over`: lines that are not finished are shown as if they were.
void Display::flush_output(bool is_over) {
  if (is_over)
    for (auto& [stream, lines] : lines_) {
      std::string drawn;
      lines.finish(drawn);
      if (!drawn.empty()) pending_.emplace_back(stream, std::move(drawn));
    }
  if (is_over) send_.cancel();
  if (pending_.empty()) return;
  sent_ = Clock::now();
  const auto pending = std::exchange(pending_, {});
  if (progress_id_.empty()) {
    for (const auto& [stream, text] : pending) publish_stream(stream, text);
    return;
  }
  // The lines that the display has shown have ended, or others ended beside them: they are its last text, and what is
  // not finished gets a display below them.
  std::string text;
  for (const auto& [stream, part] : pending) text += limited(part);
  if (text.empty()) return;  // the notebook has had enough
  while (text.ends_with('\n')) text.pop_back();
  publish(
      "update_display_data",
      {{"data", {{"text/plain", text}}}, {"metadata", json::object()}, {"transient", {{"display_id", progress_id_}}}});
  progress_id_.clear();
  progress_.clear();
  if (!is_over) arm();
}

/// Returns what the notebook still gets of `text`.
std::string Display::limited(const std::string& text) {
  if (!runs_ || wishes_.in_full) return text;
  const bool was_cut = limit_.is_cut();
  std::string shown = limit_.take(text);
  if (limit_.is_cut() && !was_cut) shown += limit_.cut_text();
  return shown;
}

void Display::publish_stream(Stream stream, const std::string& text) {
  std::string shown = limited(text);
  if (!shown.empty()) publish("stream", {{"name", name_of(stream)}, {"text", std::move(shown)}});
}

/// Shows the lines that are not finished, in place of those that were; with output that is held, if nothing else has
/// come for a period.
void Display::show_progress() {
  const bool is_held = holds_output() && !limit_.is_cut();
  const bool shows_held = is_held && Clock::now() >= held_since_ + kHeldPeriod;
  if (is_held && !shows_held && !send_.is_set())
    send_.set(held_since_ + kHeldPeriod, [this] {
      flush_output(/*is_over=*/false);
      show_progress();
    });
  std::string text = shows_held ? held_text() : "";
  if (!shows_held)
    for (const auto& [stream, lines] : lines_)
      for (const std::string& row : lines.unfinished()) text += (text.empty() ? "" : "\n") + row;
  for (const auto& [number, loop] : loops_)
    text += (text.empty() ? "" : "\n") + lines_.at(Stream::standard_output).output_gutter(loop.ranks) +
            progress_text(loop, 0, output_screen());
  if (text.empty() || text == progress_) return;
  const bool is_new = progress_id_.empty();
  if (is_new) progress_id_ = random_key();
  publish(
      is_new ? "display_data" : "update_display_data",
      {{"data", {{"text/plain", text}}}, {"metadata", json::object()}, {"transient", {{"display_id", progress_id_}}}});
  progress_ = std::move(text);
  sent_ = Clock::now();
}

void Display::publish_problems() {
  if (problems_text_.empty()) return;
  flush();
  publish("stream", {{"name", "stderr"}, {"text", std::exchange(problems_text_, {})}});
}

}  // namespace lockstep::shell::jupyter
