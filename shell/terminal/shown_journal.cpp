#include "shell/terminal/shown_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "shell/events/event_reader.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

std::string text_in(const nlohmann::json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

RankSet ranks_in(const nlohmann::json& record) {
  try {
    return record.at("ranks").get<RankSet>();
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string missing_text(const nlohmann::json& record, const Screen& screen) {
  return paint(screen, Style::dim, signs(screen).dots + (" " + words_of_missing(record))) + "\n";
}

/// Takes those before the number `first` out of a "missing" record. Returns whether any is left.
bool cut_missing(nlohmann::json& record, uint64_t first) {
  const auto number = record.value("n", uint64_t{0}), count = record.value("records", uint64_t{0});
  const uint64_t before = first > number ? first - number : 0;
  if (before >= count) return false;
  record["records"] = count - before;
  return true;
}

/// The last lines of a text that may be long.
class LastLines {
 public:
  explicit LastLines(size_t most) : most_(most) {}

  void add(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      if (lines_.empty() || lines_.back().ends_with('\n')) lines_.emplace_back();
      lines_.back() += text.substr(at, end - at);
      at = end;
      if (lines_.size() <= most_) continue;
      lines_.pop_front();
      ++left_out_;
    }
  }
  size_t left_out() const { return left_out_; }
  std::string text() const { return fmt::format("{}", fmt::join(lines_, "")); }

 private:
  const size_t most_;
  std::deque<std::string> lines_;
  size_t left_out_ = 0;
};

}  // namespace

std::string words_of_missing(const nlohmann::json& record) {
  const auto count = record.value("records", uint64_t{0});
  return fmt::format("{} record{} {}", count, count == 1 ? "" : "s",
                     text_in(record, "reason") == "size" ? "not kept: the journal had reached its size (--journal-size)"
                                                         : "missing: could not be written, or damaged");
}

bool draw_journal(JournalReader& reader, uint64_t first, Renderer& renderer, const Screen& screen,
                  const std::function<bool()>& over) {
  bool is_closed = false;
  while (auto record = over() ? std::nullopt : reader.next()) {
    const std::string event = (*record)["event"];
    is_closed = is_closed || event == "closed";
    if (event == "missing") {
      if (!cut_missing(*record, first)) continue;
      renderer.flush();
      renderer.show(missing_text(*record, screen));
    } else if (record->value("n", uint64_t{0}) < first) {
      if (event == "session") renderer.set_ranks(ranks_in(*record));
    } else if (event == "input") {
      renderer.flush();
      const auto number = record->value("cell", int64_t{0});
      std::string text = text_in(*record, "title");
      if (!text.empty()) text += '\n';
      text = without_controls(text + text_in(*record, "text"));
      renderer.show(prompt_text(number, ranks_in(*record), screen) + text + (text.ends_with('\n') ? "" : "\n"));
    } else if (const auto read = read_event(*record)) {
      renderer.take(*read);
    }
  }
  renderer.flush();
  return is_closed;
}

std::string journal_end(const std::string& path, const std::string& id, uint64_t first, uint64_t last,
                        const Screen& screen, size_t most_lines) {
  LastLines lines(most_lines);
  Renderer renderer(screen, [&](std::string_view text) { lines.add(text); });
  renderer.set_live(false);
  JournalReader reader(path);
  draw_journal(reader, first, renderer, screen, [] { return false; });
  if (reader.last() < last)
    lines.add(missing_text({{"records", last - std::max(reader.last(), first - 1)}, {"reason", "lost"}}, screen));
  std::string text;
  if (lines.left_out() > 0)
    text = paint(screen, Style::dim,
                 fmt::format("{} {} lines before these: lockstep sessions show {}", signs(screen).dots,
                             lines.left_out(), id)) +
           "\n";
  return text + lines.text();
}

}  // namespace lockstep::shell
