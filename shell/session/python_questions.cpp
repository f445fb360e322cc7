#include "shell/session/python_questions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shell/scripts/python_cell.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kPatience{500};

/// The answer of the first rank that takes cells; nothing where it gives none.
template <typename Q>
std::optional<typename Q::Answer> ask_one(SessionCore& session, const Q& question) {
  const RankSet ranks = session.live_ranks() - session.busy_ranks();
  if (ranks.empty()) return std::nullopt;
  auto answers = session.query(RankSet{ranks.ranks().front()}, question, kPatience);
  if (answers.empty() || !answers.begin()->second.error.empty()) return std::nullopt;
  return std::move(answers.begin()->second);
}

}  // namespace

Completeness python_completeness(SessionCore& session, const std::string& text) {
  const Completeness scanned = scan_python_completeness(text);
  if (text.find("\n") == std::string::npos && (text.starts_with('%') || text.starts_with('!'))) return scanned;
  const auto answer = ask_one(session, protocol::question::IsComplete{text});
  if (!answer) return scanned;
  Completeness result;
  // A text with magics in it is none that Python knows.
  result.status = answer->status == TextStatus::invalid ? scanned.status : answer->status;
  result.indent = answer->indent;
  return result;
}

protocol::Completions python_completions(SessionCore& session, const std::string& text, int64_t offset) {
  protocol::Completions result;
  result.begin = result.end = offset;
  const auto answer = ask_one(session, protocol::question::Complete{text, offset});
  if (!answer) return result;
  result.begin = std::clamp<int64_t>(answer->begin, 0, offset);
  for (const std::string& each : answer->candidates) result.completions.emplace_back().text = each;
  return result;
}

Description describe_python(SessionCore& session, const std::string& expression) {
  const auto answer = ask_one(session, protocol::question::Describe{expression});
  if (!answer || !answer->text) return {};
  return {true, *answer->text, {{"expression", expression}, {"text", *answer->text}}};
}

}  // namespace lockstep::shell
