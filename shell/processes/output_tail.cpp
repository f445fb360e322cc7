#include "shell/processes/output_tail.h"

#include <string_view>

namespace lockstep::shell {
namespace {
constexpr size_t kKept = 16 << 10;
}

OutputTail::OutputTail() : pipe_(make_pipe()) { set_nonblocking(pipe_.read.get()); }

bool OutputTail::take() {
  Reading found;
  while ((found = read_some(pipe_.read.get(), text_)) == Reading::bytes)
    if (text_.size() > kKept) text_.erase(0, text_.size() - kKept);
  return found != Reading::end;
}

std::string OutputTail::last_lines(int count) {
  take();
  std::string_view text = text_;
  const auto end = text.find_last_not_of(" \r\n\t");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  size_t begin = text.size();
  for (int i = 0; i < count && begin != 0; ++i) {
    const auto newline = text.rfind('\n', begin - 1);
    if (newline == std::string_view::npos)
      begin = 0;
    else
      begin = i + 1 < count ? newline : newline + 1;
  }
  std::string result = "  ";
  for (char c : text.substr(begin)) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace lockstep::shell
