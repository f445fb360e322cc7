#include "shell/jobs/job_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_picture.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostFrames = 40;

std::string place_of(const inspect::EvidenceFrame& frame) {
  return fmt::format("{}, line {}, in {}", frame.file, frame.line, frame.function);
}

/// Returns, by rank, `words` of each answer; what is wrong with it where there is none.
template <typename Words>
std::map<int, std::string> answers(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit, Words words) {
  std::map<int, std::string> result;
  for (const auto& [rank, answer] : ask_ranks(ranks, {{"request", "stacks"}}, limit)) {
    try {
      result[rank] = answer.error.empty() ? words(rank, answer.body) : "does not answer: " + answer.error;
    } catch (const std::exception& error) {  // the other ranks' answers are as good as before
      result[rank] = std::string("answers what can't be read: ") + error.what();
    }
  }
  return result;
}

}  // namespace

std::string by_text(const std::map<int, std::string>& texts, const char* between) {
  std::vector<std::pair<std::string, RankSet>> lines;
  for (const auto& [rank, text] : texts) {
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == text; });
    if (known == lines.end())
      lines.emplace_back(text, RankSet{rank});
    else
      known->second.insert(rank);
  }
  std::string result;
  for (const auto& [text, ranks] : lines) result += ranks.words() + between + text + (text.ends_with('\n') ? "" : "\n");
  return result;
}

std::map<int, std::string> activities_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit) {
  return answers(ranks, limit, [](int rank, const nlohmann::json& answer) {
    const auto frames = main_frames(rank, answer);
    std::string words = doing_of(rank, answer, frames).words;
    if (const auto* frame = inspect::program_frame(frames)) words += ", at " + place_of(*frame);
    return words;
  });
}

std::map<int, std::string> stacks_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit) {
  return answers(ranks, limit, [](int rank, const nlohmann::json& answer) {
    std::string text;
    const nlohmann::json native = answer.value("native", nlohmann::json::array());
    if (answer.contains("python")) {
      const auto frames = main_frames(rank, answer);
      text += "  Python\n";
      for (size_t i = 0; i < std::min(frames.size(), kMostFrames); ++i) text += "    " + place_of(frames[i]) + "\n";
      if (frames.empty()) text += "    none\n";
    }
    text += "  native\n";
    size_t shown = 0;
    for (const auto& frame : native) {
      const std::string function = frame.value("function", ""), file = frame.value("file", "");
      const std::string at =
          file.empty() ? frame.value("object", "") : fmt::format("{}:{}", file, frame.value("line", 0));
      if (++shown <= kMostFrames) text += fmt::format("    {} ({})\n", function.empty() ? "?" : function, at);
    }
    if (shown == 0) text += "    the main thread did not answer\n";
    return text;
  });
}

}  // namespace lockstep::shell
