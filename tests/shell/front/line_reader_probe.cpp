// The line reader without a session, for line_reader_test.py: each cell that is read comes back as one line of JSON.
// Cells are whole when their brackets are; `f`, `fo`, `foo_` complete to foo_bar and foo_baz; what is written to
// descriptor 3 is drawn above the prompt. Of the cell `Ctrl-C` Ctrl-C comes while it is asked whether it is whole.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "shell/terminal/edit_line_reader.h"
#include "shell/terminal/plain_line_reader.h"

using namespace lockstep;
using namespace lockstep::shell;

namespace {

EditLineReader* the_reader = nullptr;

Completeness by_brackets(const std::string& text, bool is_pasted) {
  if (text == "Ctrl-C") std::raise(SIGINT);
  int depth = 0;
  for (const char c : text) depth += c == '{' || c == '(' ? 1 : c == '}' || c == ')' ? -1 : 0;
  if (text.starts_with("%%") && !is_pasted) return {TextStatus::incomplete, depth};
  return {depth > 0 ? TextStatus::incomplete : TextStatus::complete, depth > 0 ? depth : 0};
}

protocol::Completions complete(const std::string& text, int64_t offset) {
  int64_t begin = offset;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_')) --begin;
  protocol::Completions result{begin, offset, {}};
  const std::string word = text.substr(begin, offset - begin);
  for (const char* name : {"foo_bar", "foo_baz", "print"})
    if (std::string(name).starts_with(word)) result.completions.push_back({name, "function", "void ()"});
  return result;
}

/// f( has two overloads.
std::vector<protocol::Signature> signatures(const std::string& text, int64_t offset) {
  const std::string before = text.substr(0, static_cast<size_t>(offset));
  const size_t open = before.rfind("f(");
  if (open == std::string::npos || before.find(')', open) != std::string::npos) return {};
  const bool second = before.find(',', open) != std::string::npos;
  return {{"int f(int a, int b)", {{6, 11}, {13, 18}}, second ? 1 : 0}, {"int f(char c)", {{6, 12}}, second ? -1 : 0}};
}

void wait_for(int fd) {
  for (;;) {
    pollfd polls[] = {{fd, POLLIN, 0}, {3, POLLIN, 0}};
    if (::poll(polls, 2, -1) < 0) continue;
    if (polls[1].revents & POLLIN) {
      char bytes[4096];
      const ssize_t count = ::read(3, bytes, sizeof bytes);
      if (count > 0 && the_reader) {
        the_reader->hide();
        std::fwrite(bytes, 1, static_cast<size_t>(count), stdout);
        std::fflush(stdout);
        the_reader->show();
      }
    }
    if (polls[0].revents) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  const LineReaderServices services{wait_for, by_brackets, complete, signatures};
  std::unique_ptr<LineReader> reader;
  if (::isatty(STDIN_FILENO)) {
    auto editing = std::make_unique<EditLineReader>(services, HistoryFile(argc > 1 ? argv[1] : ""));
    the_reader = editing.get();
    reader = std::move(editing);
    std::signal(SIGINT, [](int) { the_reader->interrupt(); });
    std::signal(SIGWINCH, [](int) { the_reader->resized(); });
  } else {
    reader = std::make_unique<PlainLineReader>(STDIN_FILENO, services);
  }
  for (int number = 1;; ++number) {
    const LineReader::Input input = reader->read("\033[36mIn [" + std::to_string(number) + "] \u25b8\033[0m ");
    if (input.end == LineReader::End::end_of_input) break;
    if (input.end == LineReader::End::cancelled)
      std::printf("cancelled\n");
    else
      std::printf("cell %s\n", nlohmann::json(input.text).dump().c_str());
    std::fflush(stdout);
    if (argc > 1) reader->remember(input.text);
  }
  std::printf("end\n");
  return 0;
}
