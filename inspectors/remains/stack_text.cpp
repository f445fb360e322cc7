#include "inspectors/remains/stack_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "protocol/whole_number.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kMostFrames = 500;
constexpr size_t kMostMessage = 2000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Removes "[rank3]: " or "[trainer3]:" from the begin of `line` and returns the number.
std::optional<int> take_rank(std::string_view& line) {
  if (line.empty() || line.front() != '[') return std::nullopt;
  const size_t end = line.find("]:");
  if (end == std::string_view::npos || end > 64) return std::nullopt;
  size_t begin = end;
  while (begin > 1 && is_digit(line[begin - 1])) --begin;
  if (begin == end || end - begin > 7) return std::nullopt;
  const bool named = std::ranges::all_of(
      line.substr(1, begin - 1), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; });
  if (!named) return std::nullopt;
  const int rank = *protocol::whole_number<int>(line.substr(begin, end - begin));
  const bool of_torch = line.substr(1, begin - 1) == "rank";  // which adds a space; torchrun does not
  line.remove_prefix(end + 2);
  if (of_torch && line.starts_with(' ')) line.remove_prefix(1);
  return rank;
}

/// Reads `  File "train.py", line 12 in main` of faulthandler, and with a comma before "in" of a traceback.
std::optional<EvidenceFrame> python_frame(std::string_view line) {
  constexpr std::string_view kFile = "  File \"", kLine = "\", line ";
  if (!line.starts_with(kFile)) return std::nullopt;
  line.remove_prefix(kFile.size());
  const size_t end = line.find(kLine);
  if (end == std::string_view::npos) return std::nullopt;
  EvidenceFrame frame{.function = {}, .file = std::string(line.substr(0, end)), .line = 0};
  line.remove_prefix(end + kLine.size());
  const size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
  const auto at = protocol::whole_number<int64_t>(line.substr(0, digits));
  if (!at) return std::nullopt;
  frame.line = *at;
  line.remove_prefix(digits);
  if (line.starts_with(',')) line.remove_prefix(1);
  if (line.starts_with(" in ")) frame.function = line.substr(4);
  return frame;
}

/// Reads `    all_reduce (torch/distributed/distributed_c10d.py:2806)` of py-spy.
std::optional<EvidenceFrame> py_spy_frame(std::string_view line) {
  if (!line.starts_with("    ") || !line.ends_with(')')) return std::nullopt;
  line.remove_prefix(4);
  const size_t open = line.rfind(" ("), colon = line.rfind(':');
  if (open == std::string_view::npos || colon == std::string_view::npos || colon < open) return std::nullopt;
  const auto at = protocol::whole_number<int64_t>(line.substr(colon + 1, line.size() - colon - 2));
  if (!at) return std::nullopt;
  return EvidenceFrame{.function = std::string(line.substr(0, open)),
                       .file = std::string(line.substr(open + 2, colon - open - 2)),
                       .line = *at};
}

/// Reads one rank's lines, which those of others may interrupt.
class LineReader {
 public:
  LineReader(int rank, const std::string& origin, Remains& into) : rank_(rank), origin_(origin), into_(into) {}

  void line(std::string_view line) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (state_ != State::outside && goes_on(line)) return;
    begin(line);
  }
  void end() {
    if (state_ == State::thread) end_thread();
    state_ = State::outside;
  }
  bool found() const { return found_; }

 private:
  enum class State { outside, traceback, thread };

  bool goes_on(std::string_view line) {
    if (state_ == State::traceback) {
      if (auto frame = python_frame(line)) {
        add(std::move(*frame));
        return true;
      }
      if (line.starts_with("  ")) return true;  // the source, and markers below it
      if (!line.empty()) end_traceback(line);
      state_ = State::outside;
      return !line.empty();
    }
    auto frame = python_frame(line);
    if (!frame) frame = py_spy_frame(line);
    if (frame) {
      add(std::move(*frame));
      return true;
    }
    end_thread();
    state_ = State::outside;
    return false;
  }

  void begin(std::string_view line) {
    constexpr std::string_view kFatal = "Fatal Python error: ", kFirst = "(most recent call first):";
    constexpr std::string_view kUncaught = "terminate called after throwing an instance of '", kWhat = "  what():  ";
    if (line == "Traceback (most recent call last):") {
      frames_.clear();
      state_ = State::traceback;
    } else if (line.starts_with("During handling of the above exception") ||
               line.starts_with("The above exception was the direct cause")) {
      follows_ = true;
    } else if (line.starts_with(kUncaught) && line.ends_with('\'')) {  // of C++
      line.remove_suffix(1);
      into_.errors.push_back({.rank = rank_,
                              .type = std::string(line.substr(kUncaught.size(), kMostMessage)),
                              .message = {},
                              .time_s = 0,
                              .frames = {},
                              .origin = origin_});
      uncaught_ = into_.errors.size();
      found_ = true;
    } else if (line.starts_with(kWhat) && uncaught_ > 0) {
      into_.errors[std::exchange(uncaught_, 0) - 1].message = line.substr(kWhat.size(), kMostMessage);
    } else if (line.starts_with(kFatal)) {
      into_.errors.push_back({.rank = rank_,
                              .type = "Fatal Python error",
                              .message = std::string(line.substr(kFatal.size(), kMostMessage)),
                              .time_s = 0,
                              .frames = {},
                              .origin = origin_});
      fatal_ = into_.errors.size();
      found_ = true;
    } else if (line == "Stack (most recent call first):") {  // one thread: that which was interrupted
      is_main_ = true;
      thread_.clear();
      frames_.clear();
      state_ = State::thread;
    } else if (line.ends_with(kFirst) && (line.starts_with("Thread ") || line.starts_with("Current thread "))) {
      line.remove_suffix(kFirst.size());
      is_main_ = line.starts_with("Current");
      thread_ = line.substr(line.find("hread ") + 6);
      while (thread_.ends_with(' ')) thread_.pop_back();
      frames_.clear();
      state_ = State::thread;
    } else if (line.starts_with("Thread ") && line.find("): \"") != std::string_view::npos && line.ends_with('"')) {
      const size_t name = line.find("): \"") + 4;
      thread_ = line.substr(name, line.size() - name - 1);
      is_main_ = thread_ == "MainThread";
      frames_.clear();
      state_ = State::thread;
    }
  }

  void add(EvidenceFrame frame) {
    if (frames_.size() < kMostFrames) frames_.push_back(std::move(frame));
  }

  /// `line` is "RuntimeError: no such file", or the type alone.
  void end_traceback(std::string_view line) {
    const size_t colon = line.find(": ");
    RankError error{.rank = rank_, .type = {}, .message = {}, .time_s = 0, .frames = {}, .origin = origin_};
    error.type = line.substr(0, std::min({colon, line.size(), kMostMessage}));
    if (colon != std::string_view::npos) error.message = line.substr(colon + 2, kMostMessage);
    error.frames = {frames_.rbegin(), frames_.rend()};
    if (std::exchange(follows_, false) && last_ > 0)
      into_.errors[last_ - 1] = std::move(error);
    else
      into_.errors.push_back(std::move(error)), last_ = into_.errors.size();
    found_ = true;
  }

  void end_thread() {
    if (frames_.empty()) return;
    if (is_main_ && fatal_ > 0) into_.errors[std::exchange(fatal_, 0) - 1].frames = frames_;
    into_.stacks.push_back(
        {.rank = rank_, .thread = thread_, .is_main = is_main_, .frames = std::move(frames_), .origin = origin_});
    frames_.clear();
    found_ = true;
  }

  const int rank_;
  const std::string& origin_;
  Remains& into_;
  State state_ = State::outside;
  std::vector<EvidenceFrame> frames_;
  std::string thread_;
  bool is_main_ = false, follows_ = false, found_ = false;
  size_t last_ = 0, fatal_ = 0, uncaught_ = 0;  // 1 + the index of an error; 0: none
};

}  // namespace

bool read_stack_text(std::string_view text, const std::string& origin, std::optional<int> rank, Remains& into) {
  std::map<int, LineReader> readers;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::optional<int> named = take_rank(line);
    // torch's number comes after torchrun's, and is that of all ranks.
    if (const auto inner = named ? take_rank(line) : std::nullopt) named = inner;
    const int of = named.value_or(rank.value_or(-1));
    readers.try_emplace(of, of, origin, into).first->second.line(line);
  }
  bool found = false;
  for (auto& [of, reader] : readers) {
    reader.end();
    found |= reader.found();
  }
  return found;
}

std::optional<int> rank_of_torch_in(std::string_view text) {
  constexpr std::string_view kTorch = "[rank";
  for (size_t at = text.find(kTorch); at != std::string_view::npos; at = text.find(kTorch, at + 1)) {
    std::string_view line = text.substr(at, 64);
    if (at > 0 && text[at - 1] != '\n') continue;
    if (const auto rank = take_rank(line)) return rank;
  }
  return std::nullopt;
}

std::vector<EvidenceFrame> traceback_frames(std::string_view text) {
  Remains remains;
  read_stack_text(text, {}, std::nullopt, remains);
  return remains.errors.empty() ? std::vector<EvidenceFrame>() : std::move(remains.errors.back().frames);
}

}  // namespace lockstep::inspect
