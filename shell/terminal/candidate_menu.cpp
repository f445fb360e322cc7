#include "shell/terminal/candidate_menu.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr size_t kFew = 10;  // candidates that have a line each
constexpr size_t kMostRows = 10;
constexpr size_t kMostSignatures = 4;
constexpr int kWidestColumn = 40;

/// Names of files are among them.
std::string cut(const Screen& screen, const std::string& name, int width) {
  const std::string text = without_controls(name);
  if (width <= 0) return "";
  if (text_width(text) <= width) return text;
  const std::string dots = signs(screen).dots;
  return std::string(fitting(text, std::max(0, width - text_width(dots)))) + dots;
}

}  // namespace

CandidateMenu::CandidateMenu(const std::vector<protocol::Completion>& completions) {
  for (const protocol::Completion& each : completions) {
    const auto same = std::find_if(candidates_.begin(), candidates_.end(),
                                   [&](const Candidate& known) { return known.text == each.text; });
    if (same != candidates_.end())
      ++same->overloads;
    else
      candidates_.push_back({each.text, each.kind, each.detail});
  }
}

std::string CandidateMenu::common_prefix() const {
  if (candidates_.empty()) return "";
  std::string prefix = candidates_.front().text;
  for (const Candidate& each : candidates_) {
    const auto end = std::mismatch(prefix.begin(), prefix.end(), each.text.begin(), each.text.end()).first;
    prefix.erase(end, prefix.end());
  }
  while (!prefix.empty() && find_invalid_utf8(prefix)) prefix.pop_back();  // never half a character
  return prefix;
}

void CandidateMenu::select_next(int step) {
  if (candidates_.empty()) return;
  if (!selected_)
    selected_ = step > 0 ? 0 : candidates_.size() - 1;
  else
    selected_ = (*selected_ + candidates_.size() + static_cast<size_t>(step)) % candidates_.size();
}

std::string CandidateMenu::described(const Candidate& candidate) const {
  std::string text = candidate.detail.empty() ? candidate.kind : candidate.detail;
  if (candidate.overloads > 1)
    text += " (+" + std::to_string(candidate.overloads - 1) + (candidate.overloads == 2 ? " overload)" : " overloads)");
  return text;
}

std::vector<std::string> CandidateMenu::rows(const Screen& screen) const {
  std::vector<std::string> rows;
  const int width = std::max(20, screen.width) - 1;
  int name_width = 0;
  for (const Candidate& each : candidates_) name_width = std::max(name_width, text_width(each.text));
  name_width = std::min(name_width, kWidestColumn);
  const auto name = [&](size_t index) {
    const std::string text = padded(cut(screen, candidates_[index].text, name_width), name_width);
    return selected_ == index ? (screen.colour ? paint(screen, Style::selected, text) : "[" + text + "]") : text;
  };
  if (candidates_.size() <= kFew && static_cast<int>(candidates_.size()) < screen.height / 2) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const std::string detail = described(candidates_[i]);
      rows.push_back(name(i) + "  " + paint(screen, Style::dim, cut(screen, detail, width - name_width - 4)));
    }
    return rows;
  }
  const auto columns = static_cast<size_t>(std::max(1, width / (name_width + 2)));
  const size_t lines = (candidates_.size() + columns - 1) / columns;
  const size_t most = std::min<size_t>(kMostRows, static_cast<size_t>(std::max(2, screen.height / 2 - 1)));
  const size_t shown = std::min(lines, most);
  // Candidates go along the rows, so that the best ones are at the top; the selected one stays in view.
  const size_t selected_line = selected_ ? *selected_ / columns : 0;
  const size_t first = selected_line >= shown ? selected_line - shown + 1 : 0;
  for (size_t line = first; line < first + shown; ++line) {
    std::string row;
    for (size_t i = line * columns; i < std::min((line + 1) * columns, candidates_.size()); ++i) row += name(i) + "  ";
    while (row.ends_with(' ')) row.pop_back();
    rows.push_back(std::move(row));
  }
  std::string last;
  if (selected_) {
    last = described(candidates_[*selected_]);
  } else if (lines > shown) {
    last = std::string(signs(screen).dots) + " " + std::to_string(candidates_.size() - shown * columns) +
           " more; Tab walks through them";
  }
  if (!last.empty()) rows.push_back(paint(screen, Style::dim, cut(screen, last, width)));
  return rows;
}

std::vector<std::string> signature_rows(const std::vector<protocol::Signature>& signatures, const Screen& screen) {
  std::vector<const protocol::Signature*> best;
  for (const bool fits : {true, false})
    for (const protocol::Signature& each : signatures)
      if ((each.active >= 0) == fits) best.push_back(&each);
  const int width = std::max(20, screen.width) - 1;
  std::vector<std::string> rows;
  for (const protocol::Signature* each : best) {
    if (rows.size() == kMostSignatures) break;
    const bool has_active = each->active >= 0 && each->active < static_cast<int64_t>(each->parameters.size());
    std::string label = each->label;
    size_t begin = label.size(), end = label.size();
    if (has_active) {
      begin = static_cast<size_t>(each->parameters[static_cast<size_t>(each->active)].first);
      end = static_cast<size_t>(each->parameters[static_cast<size_t>(each->active)].second);
    }
    // The parameter at the cursor stays in view.
    const std::string dots = signs(screen).dots;
    if (end > static_cast<size_t>(width)) {
      const size_t left_out = std::min(begin, end - static_cast<size_t>(width) / 2);
      label = dots + label.substr(left_out);
      begin = begin - left_out + dots.size();
      end = end - left_out + dots.size();
    }
    label = cut(screen, label, width);
    begin = std::min(begin, label.size());
    end = std::min(end, label.size());
    const std::string marked = label.substr(begin, end - begin);
    rows.push_back(paint(screen, Style::dim, label.substr(0, begin)) +
                   (screen.colour || marked.empty() ? paint(screen, Style::bold, marked) : "<" + marked + ">") +
                   paint(screen, Style::dim, label.substr(end)));
  }
  if (best.size() > rows.size())
    rows.push_back(
        paint(screen, Style::dim,
              std::string(signs(screen).dots) + " " + std::to_string(best.size() - rows.size()) + " more overloads"));
  return rows;
}

}  // namespace lockstep::shell
