#include "shell/scripts/details.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Reaches from `<TAG` to its `>`; nothing (npos) where it is not in the text. `<details open>` is one, `<detailsx>` is none.
struct HtmlTag {
  size_t begin = std::string_view::npos, end = std::string_view::npos;
};
HtmlTag find_tag(std::string_view text, std::string_view name, size_t from) {
  for (size_t at = text.find(name, from); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t after = at + name.size();
    if (after >= text.size() || (text[after] != '>' && text[after] != ' ')) continue;
    const size_t end = text.find('>', after);
    if (end != std::string_view::npos) return {.begin = at, .end = end + 1};
  }
  return {};
}

std::string transformed(std::string_view text, std::string_view sign, bool open) {
  std::string result;
  size_t done = 0;
  for (;;) {
    const HtmlTag details = find_tag(text, "<details", done);
    if (details.begin == std::string_view::npos) return result.append(text.substr(done));
    // Details in details end with the outer ones.
    size_t end = details.end;
    int depth = 1;
    while (depth > 0) {
      const HtmlTag inner = find_tag(text, "<details", end), close = find_tag(text, "</details", end);
      if (close.begin == std::string_view::npos) {
        end = text.size();
        break;
      }
      depth += inner.begin < close.begin ? 1 : -1;
      end = inner.begin < close.begin ? inner.end : close.end;
    }
    std::string_view body = text.substr(details.end, end - details.end);
    if (depth == 0) body = body.substr(0, body.rfind("</details"));
    const HtmlTag summary = find_tag(body, "<summary", 0), summary_end = find_tag(body, "</summary", 0);
    std::string head = "Details";
    if (summary_end.begin != std::string_view::npos && summary.end <= summary_end.begin) {
      head = trimmed(body.substr(summary.end, summary_end.begin - summary.end));
      body = body.substr(summary_end.end);
    }
    result.append(text.substr(done, details.begin - done)).append(sign).append(" ").append(head);
    result += open ? "\n\n" + transformed(trimmed(body), sign, true) : " (hidden: --answers shows it)";
    done = end;
  }
}

}  // namespace

std::string with_folded_details(std::string_view text, std::string_view sign) { return transformed(text, sign, false); }
std::string with_open_details(std::string_view text, std::string_view sign) { return transformed(text, sign, true); }

}  // namespace lockstep::shell
