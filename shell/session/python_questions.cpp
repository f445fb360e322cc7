#include "shell/session/python_questions.h"

#include "shell/scripts/python_cell.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kPatience{500};

/// The answer of the first rank that takes cells; null where none answers.
nlohmann::json ask_one(SessionCore& session, const protocol::Question& question) {
  const RankSet ranks = session.live_ranks() - session.busy_ranks();
  if (ranks.empty()) return nullptr;
  const auto answers = session.query(RankSet{ranks.ranks().front()}, question, kPatience);
  if (answers.empty() || answers.begin()->second.contains("error")) return nullptr;
  return answers.begin()->second;
}

}  // namespace

Completeness python_completeness(SessionCore& session, const std::string& text) {
  const Completeness scanned = scan_python_completeness(text);
  if (text.find("\n") == std::string::npos && (text.starts_with('%') || text.starts_with('!'))) return scanned;
  const nlohmann::json answer = ask_one(session, protocol::question::IsComplete{text});
  if (answer.is_null()) return scanned;
  Completeness result;
  const std::string status = answer.value("status", std::string("complete"));
  // A text with magics in it is none that Python knows.
  result.status = status == "incomplete" ? TextStatus::incomplete
                  : status == "complete" ? TextStatus::complete
                                         : scanned.status;
  result.indent = answer.value("indent", 0);
  return result;
}

protocol::Completions python_completions(SessionCore& session, const std::string& text, int64_t offset) {
  protocol::Completions result;
  result.begin = result.end = offset;
  const nlohmann::json answer = ask_one(session, protocol::question::Complete{text, offset});
  if (answer.is_null()) return result;
  result.begin = answer.value("begin", offset);
  for (const auto& each : answer.value("candidates", nlohmann::json::array())) {
    protocol::Completion completion;
    completion.text = each.get<std::string>();
    result.completions.push_back(std::move(completion));
  }
  return result;
}

Description describe_python(SessionCore& session, const std::string& expression) {
  const nlohmann::json answer = ask_one(session, protocol::question::Describe{expression});
  if (!answer.is_object() || !answer.contains("text")) return {};
  return {true, answer["text"].get<std::string>(), {{"expression", expression}, {"text", answer["text"]}}};
}

}  // namespace lockstep::shell
