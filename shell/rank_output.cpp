#include "shell/rank_output.h"

#include <algorithm>

#include "shell/text.h"

namespace lockstep::shell {
namespace {

/// The last `columns` of a line that is longer than the screen: a growing line shows where it grows.
std::string_view tail(std::string_view text, int columns) {
  const size_t enough = static_cast<size_t>(columns) * 8;
  if (text.size() > enough) text.remove_prefix(text.size() - enough);
  while (!text.empty() && text_width(text) > columns)
    text.remove_prefix(std::max<size_t>(1, std::max(escape_length(text), first_character(text).bytes)));
  return text;
}

}  // namespace

void RankOutput::set_ranks(const RankSet& ranks) {
  all_ = ranks;
  gutter_width_ = ranks.empty() ? 1 : ranks.str().size();
}

std::string RankOutput::gutter(const RankSet& ranks, const std::string& stream) const {
  const bool alone = all_.size() == 1 && ranks == all_;
  if (alone && stream != "value") return "";
  std::string label = alone ? "" : ranks.str();
  if (!alone && label.size() < gutter_width_) label.append(gutter_width_ - label.size(), ' ');
  const char* bar = stream == "stderr" ? signs(screen_).error : stream == "value" ? "=" : signs(screen_).output;
  return paint(screen_, stream == "stderr" ? Style::standard_error : Style::dim, label + (alone ? "" : " ") + bar) +
         " ";
}

std::string RankOutput::printable(std::string_view line) const {
  if (!screen_.terminal) return std::string(line);
  std::string result;
  for (size_t at = 0; at < line.size();) {
    const std::string_view rest = line.substr(at);
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

void RankOutput::draw(const RankSet& ranks, const std::string& stream, std::string_view line,
                      std::string& drawn) const {
  drawn += gutter(ranks, stream);
  drawn += printable(line);
  drawn += '\n';
}

void RankOutput::append(const RankSet& ranks, const std::string& stream, std::string_view bytes, std::string& drawn) {
  // Ranks whose unfinished lines are the same so far go on together.
  std::vector<Group> groups;
  std::map<int, LineBuffer>& lines = lines_[stream];
  for (const int rank : ranks) {
    const LineBuffer& line = lines[rank];
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.line == line; });
    if (group != groups.end())
      group->ranks.insert(rank);
    else
      groups.push_back({RankSet{rank}, line});
  }
  for (Group& group : groups) {
    group.line.append(bytes, [&](std::string_view line) { draw(group.ranks, stream, line, drawn); });
    for (const int rank : group.ranks) lines[rank] = group.line;
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
  std::vector<std::pair<Group, std::string>> groups;
  for (const auto& [stream, lines] : lines_)
    for (const auto& [rank, buffer] : lines) {
      if (buffer.text().empty()) continue;
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&, &stream = stream, &buffer = buffer](const auto& group) {
            return group.second == stream && group.first.line == buffer;
          });
      if (same != groups.end())
        same->first.ranks.insert(rank);
      else
        groups.push_back({{RankSet{rank}, buffer}, stream});
    }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.first.ranks < b.first.ranks; });

  std::vector<std::string> rows;
  for (const auto& [group, stream] : groups) {
    const std::string head = gutter(group.ranks, stream);
    const int columns = screen_.width > 0 ? screen_.width - 1 - text_width(head) : 1 << 20;
    if (columns <= 0) continue;
    const std::string text = printable(group.line.text());
    if (text_width(text) <= columns) {
      rows.push_back(head + text);
      continue;
    }
    const std::string dots = signs(screen_).dots;
    rows.push_back(head + dots + std::string(tail(text, std::max(0, columns - text_width(dots)))));
  }
  return rows;
}

}  // namespace lockstep::shell
