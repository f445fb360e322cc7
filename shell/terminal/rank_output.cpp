#include "shell/terminal/rank_output.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr int kTabStop = 8;  // columns, at most
constexpr size_t kBytesPerColumn = 64;  // more than a character with its colours takes

/// Returns the end of a line that may be megabytes long: what can be seen of it, and it is drawn again with each piece
/// that comes.
std::string_view end_of(std::string_view line, int columns) {
  const size_t enough = static_cast<size_t>(columns) * kBytesPerColumn;
  if (line.size() <= enough) return line;
  line.remove_prefix(line.size() - enough);
  while (!line.empty() && is_continuation_byte(line[0])) line.remove_prefix(1);
  return line;
}

/// Returns the last `columns` of a line that is longer than the screen: a growing line shows where it grows.
std::string_view tail(std::string_view text, int columns) {
  struct Piece {
    size_t begin;
    int width;
  };
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t escape = escape_length(rest), bytes = escape > 0 ? escape : first_character(rest).bytes;
    pieces.push_back({at, escape > 0 ? 0 : rest[0] == '\t' ? kTabStop : text_width(rest.substr(0, bytes))});
    at += bytes;
  }
  size_t begin = text.size();
  for (int width = 0; !pieces.empty() && (width += pieces.back().width) <= columns; pieces.pop_back())
    begin = pieces.back().begin;
  return text.substr(begin);
}

}  // namespace

void RankOutput::set_ranks(const RankSet& ranks) {
  all_ = ranks;
  gutter_width_ = ranks.empty() ? 1 : ranks.str().size();
}

/// Returns the ranks and a blank; nothing where the session has one rank.
std::string RankOutput::label(const RankSet& ranks) const {
  if (all_.size() == 1 && ranks == all_) return "";
  std::string text = ranks.str();
  if (text.size() < gutter_width_) text.append(gutter_width_ - text.size(), ' ');
  return text + " ";
}

std::string RankOutput::gutter(const RankSet& ranks, Stream stream) const {
  const std::string text = label(ranks);
  if (text.empty()) return "";
  const bool is_error = stream == Stream::standard_error;
  return paint(screen_, is_error ? Style::standard_error : Style::dim,
               text + (is_error ? signs(screen_).error : signs(screen_).output)) +
         " ";
}

std::string RankOutput::value_gutter(const RankSet& ranks) const {
  return paint(screen_, Style::dim, label(ranks) + "=") + " ";
}

std::string RankOutput::printable(std::string_view line) const {
  if (!screen_.terminal) return std::string(line);
  std::string result;
  const auto is_special = [](char c) { return c < ' ' || c > '~'; };
  for (size_t at = 0; at < line.size();) {
    const std::string_view rest = line.substr(at);
    // A flood is mostly plain characters: they are copied at once.
    if (const auto plain = std::find_if(rest.begin(), rest.end(), is_special) - rest.begin(); plain > 0) {
      result += rest.substr(0, static_cast<size_t>(plain));
      at += static_cast<size_t>(plain);
      continue;
    }
    if (const size_t escape = escape_length(rest)) {
      result += rest.substr(0, escape);
      at += escape;
      continue;
    }
    const Character character = first_character(rest);
    if (character.code == '\t' || (character.code >= 0x20 && character.code != 0x7F && character.code != 0xFFFD)) {
      result += rest.substr(0, character.bytes);
    } else if (character.code < 0x80) {
      result += '^';
      result += static_cast<char>(character.code ^ 0x40);
    } else {
      result += screen_.unicode ? "\uFFFD" : "?";
    }
    at += character.bytes;
  }
  // A colour that the line leaves on would run into the next line's gutter.
  if (result.find('\033') != std::string::npos) result += "\033[0m";
  return result;
}

void RankOutput::draw(const RankSet& ranks, Stream stream, std::string_view line, std::string& drawn) const {
  drawn += gutter(ranks, stream);
  drawn += printable(line);
  drawn += '\n';
}

void RankOutput::add(std::vector<Group>& groups, Stream stream, int rank, const LineBuffer& line) {
  const auto same = std::find_if(groups.begin(), groups.end(),
                                 [&](const Group& group) { return group.stream == stream && *group.line == line; });
  if (same != groups.end())
    same->ranks.insert(rank);
  else
    groups.push_back({RankSet{rank}, stream, &line});
}

void RankOutput::append(const RankSet& ranks, Stream stream, std::string_view bytes, std::string& drawn) {
  // Ranks whose unfinished lines are the same so far go on together.
  std::map<int, LineBuffer>& lines = lines_[stream];
  std::vector<Group> groups;
  for (const int rank : ranks) add(groups, stream, rank, lines[rank]);
  for (const Group& group : groups) {
    LineBuffer& first = lines[group.ranks.ranks().front()];
    first.append(bytes, [&](std::string_view line) { draw(group.ranks, stream, line, drawn); });
    for (const int rank : group.ranks)
      if (&lines[rank] != &first) lines[rank] = first;
  }
}

void RankOutput::finish(std::string& drawn) {
  for (auto& [stream, lines] : lines_) {
    std::vector<std::pair<std::string, RankSet>> rest;
    for (auto& [rank, buffer] : lines) {
      if (buffer.empty()) continue;
      const std::string text = buffer.take();
      const auto same = std::find_if(rest.begin(), rest.end(), [&](const auto& entry) { return entry.first == text; });
      if (same != rest.end())
        same->second.insert(rank);
      else
        rest.emplace_back(text, RankSet{rank});
    }
    for (const auto& [text, ranks] : rest) draw(ranks, stream, text, drawn);
  }
  lines_.clear();
}

std::vector<std::string> RankOutput::unfinished() const {
  std::vector<Group> groups;
  for (const auto& [stream, lines] : lines_)
    for (const auto& [rank, buffer] : lines)
      if (!buffer.text().empty()) add(groups, stream, rank, buffer);
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.ranks < b.ranks; });

  std::vector<std::string> rows;
  for (const Group& group : groups) {
    const std::string head = gutter(group.ranks, group.stream);
    const int columns = screen_.width > 0 ? screen_.width - 1 - text_width(head) : 1 << 20;
    if (columns <= 0) continue;
    const std::string_view end = end_of(group.line->text(), columns);
    const std::string text = printable(end);
    if (end.size() == group.line->text().size() && text_width(text) <= columns) {
      rows.push_back(head + text);
      continue;
    }
    const std::string dots = signs(screen_).dots;
    rows.push_back(head + dots + std::string(tail(text, std::max(0, columns - text_width(dots)))));
  }
  return rows;
}

}  // namespace lockstep::shell
