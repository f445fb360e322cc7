#include "shell/terminal/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "inspectors/hang/words.h"
#include "protocol/chart.h"
#include "shell/charts/chart_text.h"
#include "shell/events/finding_text.h"
#include "shell/events/shown_event.h"
#include "shell/terminal/status_text.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

std::string indented(std::string_view text, std::string_view indent, int width) {
  std::string result;
  for (const std::string& line :
       wrapped(text, width > 0 ? std::max(20, width - 1 - static_cast<int>(indent.size())) : 0))
    result += (line.empty() ? "" : std::string(indent) + line) + "\n";
  return result;
}

/// Returns the screen to the right of a gutter.
Screen inside(Screen screen, int gutter) {
  if (screen.width > 0) screen.width = std::max(1, screen.width - gutter);
  return screen;
}

/// Paints line by line, so that no colour runs over the end of one.
std::string painted_lines(const Screen& screen, Style style, std::string_view text) {
  std::string result;
  for (const std::string_view line : lines_of(text)) result += paint(screen, style, line) + "\n";
  return result;
}

/// Colours the words of a compiler's diagnostics: error, warning, note, and the caret line.
std::string paint_diagnostics(const Screen& screen, std::string_view text) {
  std::string result;
  for (const std::string_view line : lines_of(text)) {
    const auto word = [&](std::string_view name, Style style) {
      const size_t at = line.find(name);
      if (at == std::string_view::npos || (at > 0 && line[at - 1] != ' ')) return false;
      result += std::string(line.substr(0, at)) + paint(screen, style, name) +
                paint(screen, Style::bold, line.substr(at + name.size()));
      return true;
    };
    const bool is_caret =
        line.find('^') != std::string_view::npos && line.find_first_not_of(" ^~|0123456789+") == std::string_view::npos;
    if (is_caret)
      result += paint(screen, Style::good, line);
    else if (!word("error:", Style::fault) && !word("warning:", Style::note) && !word("note:", Style::dim))
      result += line;
    result += '\n';
  }
  return result;
}

/// Returns the text of markdown, with headings and the words between ** in bold.
std::string paint_markdown(const Screen& screen, std::string_view text) {
  std::string result;
  for (const std::string& line : wrapped(text, screen.width > 0 ? std::max(20, screen.width - 1) : 0)) {
    if (line.starts_with("#")) {
      result += paint(screen, Style::bold, line);
    } else {
      std::string_view rest = line;
      for (size_t begin; screen.colour && (begin = rest.find("**")) != std::string_view::npos;) {
        const size_t end = rest.find("**", begin + 2);
        if (end == std::string_view::npos) break;
        result +=
            std::string(rest.substr(0, begin)) + paint(screen, Style::bold, rest.substr(begin + 2, end - begin - 2));
        rest.remove_prefix(end + 2);
      }
      result += rest;
    }
    result += '\n';
  }
  return result;
}

bool is_of_a_cell(const std::string& frame) {
  return frame.starts_with("cell ") || frame.find(" at cell ") != std::string::npos;
}

/// Returns the frames of cells and what they called, and nothing of the insides of libraries, unless no cell is below
/// them. The event has all.
std::vector<std::string> frames_to_draw(const std::vector<std::string>& stack) {
  constexpr size_t kWithoutCell = 5;
  const bool any_cell = std::any_of(stack.begin(), stack.end(), is_of_a_cell);
  std::vector<std::string> drawn;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (stack[i].starts_with("?? ")) continue;
    const bool called_by_cell = i + 1 < stack.size() && is_of_a_cell(stack[i + 1]);
    if (is_of_a_cell(stack[i]) || called_by_cell || (!any_cell && drawn.size() < kWithoutCell))
      drawn.push_back(stack[i]);
  }
  return drawn;
}

/// Whether it is an error of the session itself rather than of C++ that ran: its text says it all.
bool is_message(const ErrorEvent& error) {
  for (const char* type : {"usage_error", "session_error", "start_error", "load_error", "expectation"})
    if (error.type == type) return true;
  return false;
}

}  // namespace

std::string prompt_text(int64_t cell, const RankSet& ranks, const Screen& screen) {
  return prompt_text(cell, ranks.empty() ? std::string() : ranks.words(), screen);
}

std::string prompt_text(int64_t cell, const std::string& label, const Screen& screen) {
  return paint(screen, Style::prompt,
               fmt::format("In [{}]{}{} {}", cell > 0 ? std::to_string(cell) : " ", label.empty() ? "" : " ", label,
                           signs(screen).prompt)) +
         " ";
}

Renderer::Renderer(const Screen& screen, Write write) : screen_(screen), write_(std::move(write)), output_(screen) {}

void Renderer::take(const Event& event) {
  if (!std::holds_alternative<RankEvent>(event)) draw_waits();
  if (const auto* output = std::get_if<OutputEvent>(&event))
    draw(*output);
  else
    std::visit([this](const auto& e) { draw(e); }, shown(event));
  draws_output_ = std::holds_alternative<OutputEvent>(event) || std::holds_alternative<ValueEvent>(event);
  put();
  draws_output_ = false;
}

void Renderer::begin_cell(int64_t cell, const RankSet& ranks, const std::string& title, const std::string& text) {
  const std::string head = prompt_text(cell, ranks, screen_);
  std::string line = without_controls(title.empty() ? first_line(text) : title);
  const std::string dots = std::string(" ") + signs(screen_).dots;
  const bool has_more = title.empty() && lines_of(text).size() > 1;
  constexpr int kWidest = 500;  // of a first line that may be megabytes long
  const int width =
      screen_.width > 0 ? screen_.width - 1 - text_width(head) - (has_more ? text_width(dots) : 0) : kWidest;
  line = fitting(line, std::max(8, width));
  drawn_ += head + paint(screen_, Style::bold, line) + (has_more ? paint(screen_, Style::dim, dots) : "") + "\n";
  put();
}

void Renderer::show(const std::string& text) {
  output_.finish(drawn_);
  drawn_ += text;
  put();
}

void Renderer::flush() {
  draw_waits();
  draw_dropped();
  output_.finish(drawn_);
  draw_errors();
  put();
}

void Renderer::set_live(bool live) {
  live_ = live;
  put();
}

void Renderer::set_screen(const Screen& screen) {
  screen_ = screen;
  output_.set_screen(screen);
}

void Renderer::draw_bottom_again() {
  bottom_.clear();
  bottom_rows_ = 0;
  put();
}

void Renderer::drop_output(size_t bytes) {
  dropped_ += bytes;
  if (dropping_) return;
  dropping_ = true;
  draws_output_ = false;  // what follows is to be seen
  drawn_.clear();
  bottom_.clear();
  bottom_rows_ = 0;
  output_.clear();
  // The cut may be in the middle of a line, or of a colour.
  write_(std::string(screen_.colour ? "\033[0m" : "") + "\n" +
         paint(screen_, Style::note, fmt::format("{} interrupted", signs(screen_).stopped)) +
         paint(screen_, Style::dim, "; output that is not shown yet is dropped") + "\n");
}

/// Says how much output of a cell has not been shown, when it is over or the prompt comes back.
void Renderer::draw_dropped() {
  if (!std::exchange(dropping_, false)) return;
  const double bytes = static_cast<double>(std::exchange(dropped_, 0));
  output_.clear();
  const std::string size = bytes < 1e6 ? fmt::format("{:.1f} kB", bytes / 1e3) : fmt::format("{:.1f} MB", bytes / 1e6);
  drawn_ += paint(screen_, Style::dim, fmt::format("{} {} of output not shown", signs(screen_).dots, size)) + "\n";
}

/// Returns rows at the bottom of a terminal that are drawn again as they change: unfinished lines, and ranks that
/// failed while others still run.
std::string Renderer::bottom_rows(size_t& rows) const {
  std::string text;
  rows = 0;
  if (!live_ || !screen_.terminal) return text;
  std::vector<std::string> lines = output_.unfinished();
  const int columns = screen_.width > 0 ? screen_.width - 1 : 200;
  for (const RanksSaid& wait : waits_) lines.push_back(line_of(Style::note, signs(screen_).note, wait, columns));
  for (const RanksSaid& death : deaths_) lines.push_back(line_of(Style::fault, signs(screen_).fault, death, columns));
  for (const ErrorEvent& error : errors_) {
    const std::string line =
        fmt::format("{} {}: {}: {}", signs(screen_).fault, error.ranks.words(), error.type, first_line(error.message));
    lines.push_back(paint(screen_, Style::fault, fitting(line, columns)));
  }
  for (std::string& row : status_rows()) lines.push_back(std::move(row));
  const size_t most = static_cast<size_t>(std::max(1, screen_.height - 2));
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most));
  for (const std::string& line : lines) text += (rows++ ? "\n" : "") + line;
  return text;
}

/// Returns loops that run, and what takes long, each cut to a row.
std::vector<std::string> Renderer::status_rows() const {
  const int columns = screen_.width > 0 ? screen_.width - 1 : 1 << 20;
  std::vector<std::string> rows;
  for (const auto& [number, loop] : loops_) {
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - loop.since;
    rows.push_back(output_.output_gutter(loop.event.ranks) + progress_text(loop.event, age.count(), screen_));
  }
  const size_t most = static_cast<size_t>(std::max(1, screen_.height / 2));
  std::vector<std::string> parts = activity_rows(activity_, screen_, brief_);
  if (parts.size() > most) {
    const size_t more = parts.size() - most + 1;
    parts.resize(most - 1);
    parts.push_back(paint(screen_, Style::dim, fmt::format("    {} {} more", signs(screen_).dots, more)));
  }
  rows.insert(rows.end(), parts.begin(), parts.end());
  for (std::string& row : rows)
    if (text_width(row) > columns)
      row = std::string(fitting(row, columns)) + (row.find('\033') == std::string::npos ? "" : "\033[0m");
  return rows;
}

/// Writes what was drawn above the bottom rows, and those again.
void Renderer::put() {
  size_t rows = 0;
  std::string bottom = bottom_rows(rows);
  if (drawn_.empty() && bottom == bottom_) return;
  std::string bytes;
  if (bottom_rows_ > 0) {
    bytes += '\r';
    if (bottom_rows_ > 1) bytes += fmt::format("\033[{}A", bottom_rows_ - 1);
    bytes += "\033[J";
  }
  bytes += drawn_ + bottom;
  drawn_.clear();
  bottom_ = std::move(bottom);
  bottom_rows_ = rows;
  write_(bytes);
}

void Renderer::draw(const SessionEvent& event) {
  output_.set_ranks(event.ranks);
  if (quiet_ || event.has_grown) return;
  const auto version = [&](const char* name, const char* label) {
    const auto found = event.versions.find(name);
    return found == event.versions.end() || found->second.empty() ? "" : fmt::format(", {}{}", label, found->second);
  };
  drawn_ += paint(screen_, Style::good, signs(screen_).good) +
            fmt::format(" {} rank{}, {}{}{}\n", event.ranks.size(), event.ranks.size() == 1 ? "" : "s", event.backend,
                        version("libtorch", "LibTorch "), version("compiler", ""));
  std::vector<std::pair<std::string, RankSet>> devices;
  for (const auto& [rank, device] : event.devices) {
    const auto same = std::find_if(devices.begin(), devices.end(),
                                   [&, &device = device](const auto& entry) { return entry.first == device; });
    if (same != devices.end())
      same->second.insert(rank);
    else
      devices.emplace_back(device, RankSet{rank});
  }
  for (const auto& [device, ranks] : devices) drawn_ += fmt::format("    {} on {}\n", ranks.words(), device);
  if (event.is_job) return;
  const std::string names = event.is_python ? "torch, dist, lockstep" : "show(x), torch::, dist::, ddp::, inspect::";
  drawn_ += painted_lines(screen_, Style::dim,
                          indented("Every cell sees rank, world_size, device, get(\"ws\"), set_seed(n), " + names +
                                       ". "
                                       "%%rank SPEC picks the ranks of a cell, %help lists the magics.",
                                   "    ", screen_.width));
}

void Renderer::draw(const OutputEvent& event) {
  if (dropping_)
    dropped_ += event.bytes.size();
  else
    output_.append(event.ranks, event.stream, event.bytes, drawn_);
}

void Renderer::draw(const ValueEvent& event) {
  if (dropping_) {
    dropped_ += event.text.size();
    return;
  }
  output_.finish(drawn_);
  const std::string gutter = output_.value_gutter(event.ranks);
  std::string text = event.text.empty() ? "\n" : event.text;
  if (is_plot(event.data))
    if (const auto chart = chart_in(event.data))
      text = without_controls(chart_text(*chart, inside(screen_, text_width(gutter))), /*keeps_colours=*/true);
  const std::vector<std::string_view> lines = lines_of(text);
  for (const std::string_view line : lines) drawn_ += gutter + std::string(line) + "\n";
  if (has_prompt_ && !is_plot(event.data) && lines.size() > static_cast<size_t>(std::max(1, screen_.height)))
    drawn_ +=
        paint(screen_, Style::dim,
              fmt::format("{} {} lines: %page EXPR shows a value in a pager", signs(screen_).dots, lines.size())) +
        "\n";
}

void Renderer::draw(const ErrorEvent& event) {
  for (RanksSaid& death : deaths_) death.ranks = death.ranks - event.ranks;
  std::erase_if(deaths_, [](const RanksSaid& death) { return death.ranks.empty(); });
  if (event.others_run) {
    draw_error(event);
    reported_deaths_.push_back(head_of(event));
    return;
  }
  if (event.type == "compile_error") {
    drawn_ += paint_diagnostics(screen_, event.message);
  } else if (is_message(event) || event.cell == 0) {
    draw_error(event);
  } else {
    errors_.push_back(event);
  }
}

void Renderer::draw_errors() {
  draw_deaths();
  std::stable_sort(errors_.begin(), errors_.end(), [](const ErrorEvent& a, const ErrorEvent& b) {
    return a.root_cause != b.root_cause ? !a.root_cause : a.ranks < b.ranks;
  });
  for (const ErrorEvent& error : errors_) draw_error(error);
  // A cause that was shown long ago is named again after its consequences.
  if (!errors_.empty())
    for (const std::string& head : reported_deaths_) drawn_ += paint(screen_, Style::fault, head) + ", see above\n";
  reported_deaths_.clear();
  errors_.clear();
}

std::string Renderer::head_of(const ErrorEvent& error) const {
  std::string head = fmt::format("{} {}: {}", error.root_cause ? signs(screen_).fault : signs(screen_).note,
                                 error.ranks.empty() ? "session" : error.ranks.words(), error.type);
  if (error.where) head += " in " + *error.where;
  return head;
}

void Renderer::draw_error(const ErrorEvent& error) {
  const Style style = error.root_cause ? Style::fault : Style::dim;
  if (is_message(error)) {
    drawn_ += paint(screen_, style, signs(screen_).fault) + " ";
    const std::string text =
        indented((error.ranks.empty() ? "" : error.ranks.words() + ": ") + error.message, "  ", screen_.width);
    drawn_ += text.substr(std::min<size_t>(2, text.size()));
    return;
  }
  drawn_ += paint(screen_, style, head_of(error)) + "\n";
  if (error.root_cause && !error.traceback.empty()) {
    drawn_ += indented(error.traceback, "    ", screen_.width);
    return;
  }
  const std::string message = indented(error.message, "    ", screen_.width);
  drawn_ += error.root_cause ? message : painted_lines(screen_, Style::dim, message);
  if (!error.root_cause) return;  // where the others stood when it reached them is no news
  const std::string indent = "      ";
  for (const std::string& frame : without_repeats(frames_to_draw(error.stack), signs(screen_).dots)) {
    const int columns = screen_.width > 0 ? std::max(20, screen_.width - 1 - static_cast<int>(indent.size())) : 0;
    const bool fits = columns == 0 || text_width(frame) <= columns;
    const std::string dots = signs(screen_).dots;
    const std::string line = fits ? frame : std::string(fitting(frame, columns - text_width(dots))) + dots;
    drawn_ += indent + paint(screen_, Style::dim, line) + "\n";
  }
}

void Renderer::draw(const CellEvent& event) {
  drawn_waits_ = 0;
  draw_dropped();
  output_.finish(drawn_);
  draw_errors();
  std::vector<std::pair<CellStatus, RankSet>> ends;
  for (const auto& [rank, status] : event.rank_status) {
    if (status != CellStatus::interrupted && status != CellStatus::aborted && status != CellStatus::timeout) continue;
    const auto same =
        std::find_if(ends.begin(), ends.end(), [&, &status = status](const auto& end) { return end.first == status; });
    if (same != ends.end())
      same->second.insert(rank);
    else
      ends.emplace_back(status, RankSet{rank});
  }
  if (event.status == CellStatus::interrupted && event.rank_status.empty())
    drawn_ += paint(screen_, Style::note, fmt::format("{} interrupted", signs(screen_).stopped)) +
              paint(screen_, Style::dim, "; nothing of the cell has run") + "\n";
  for (const auto& [status, ranks] : ends) {
    const std::string_view words = status == CellStatus::timeout ? "ran out of time" : to_string(status);
    drawn_ += paint(screen_, Style::note, fmt::format("{} {}: {}", signs(screen_).stopped, ranks.words(), words)) +
              paint(screen_, Style::dim, event.keeps_names ? "; variables are kept" : "") + "\n";
  }
}

void Renderer::draw(const FindingEvent& event) {
  if (quiet_ && event.finding.severity == Severity::note) return;
  drawn_ += finding_text(event.finding, screen_);
}

void Renderer::draw(const RankEvent& event) {
  if (event.state == RankState::dead) {
    add(deaths_, event);  // its error follows: at once, soon, or with the end of the cell
  } else if (!event.message.empty() && !quiet_) {
    add(waits_, event);
    // A thousand ranks that wait are not a thousand lines: after some, what comes together is drawn together.
    constexpr size_t kSingleLines = 8;
    if (++drawn_waits_ <= kSingleLines) draw_waits();
  }
}

void Renderer::add(std::vector<RanksSaid>& said, const RankEvent& event) {
  const auto same = std::ranges::find(said, event.message, &RanksSaid::message);
  if (same != said.end())
    same->ranks.insert(event.rank);
  else
    said.push_back({event.message, RankSet{event.rank}});
}

/// Returns the line of ranks that do or did the same, cut to `columns` where there are any.
std::string Renderer::line_of(Style style, const char* sign, const RanksSaid& said, int columns) const {
  const std::string who = fmt::format("{} {}", sign, said.ranks.words());
  const std::string what =
      ": " + inspect::said_of(said.message.empty() ? "has ended" : said.message, said.ranks.size());
  if (columns == 0) return paint(screen_, style, who) + what;
  return paint(screen_, style, fitting(who + what, columns));
}

void Renderer::draw_waits() {
  for (const RanksSaid& wait : std::exchange(waits_, {}))
    drawn_ += line_of(Style::note, signs(screen_).note, wait) + "\n";
}

/// Draws deaths that no error has explained.
void Renderer::draw_deaths() {
  for (const RanksSaid& death : std::exchange(deaths_, {}))
    drawn_ += line_of(Style::fault, signs(screen_).fault, death) + "\n";
}

void Renderer::draw(const MessageEvent& event) {
  // %quiet is the one message that changes how events are drawn.
  if (event.data.is_object() && event.data.contains("quiet") && event.data["quiet"].is_boolean())
    quiet_ = event.data["quiet"].get<bool>();
  if (event.text.empty()) return;
  output_.finish(drawn_);
  drawn_ += event.text;
  if (event.text.back() != '\n') drawn_ += '\n';
}

/// A loop that is over leaves a line, unless it is in another one.
void Renderer::draw(const ProgressEvent& event) {
  if (event.state == LoopState::running) {
    loops_.insert_or_assign(event.loop, RunningLoop{event, std::chrono::steady_clock::now()});
    return;
  }
  loops_.erase(event.loop);
  if (event.parent == 0 && !dropping_)
    drawn_ += output_.output_gutter(event.ranks) + progress_text(event, 0, screen_) + "\n";
}

void Renderer::draw(const PageEvent& event) {
  output_.finish(drawn_);
  drawn_ += event.text;
  if (!event.text.ends_with('\n')) drawn_ += '\n';
}

void Renderer::draw(const ActivityEvent& event) { activity_ = event; }

void Renderer::draw(const MarkdownEvent& event) { drawn_ += "\n" + paint_markdown(screen_, event.text) + "\n"; }

void Renderer::draw(const EndEvent& event) {
  flush();
  if (quiet_ && event.exit_code == 0) return;
  const auto count = [&](const char* name) {
    const auto found = event.counts.find(name);
    return found == event.counts.end() ? 0 : found->second;
  };
  const auto plural = [](int64_t n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  std::string text = plural(count("cells"), "cell");
  if (count("failed") > 0) text += fmt::format(", {} failed", count("failed"));
  if (count("faults") > 0) text += ", " + plural(count("faults"), "fault");
  if (event.exit_code != 0) text += fmt::format(" (exit code {})", event.exit_code);
  drawn_ += paint(screen_, event.exit_code == 0 ? Style::good : Style::fault,
                  fmt::format("{} {}", event.exit_code == 0 ? signs(screen_).good : signs(screen_).fault, text)) +
            "\n";
}

}  // namespace lockstep::shell
