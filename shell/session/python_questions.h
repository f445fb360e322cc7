// Asks the ranks, at a prompt over a Python job, about a text that is typed. The lowest rank that has stopped answers.
// Without an answer within a moment, the shell uses what it knows.
#pragma once
#include <cstdint>
#include <string>

#include "protocol/compiler_messages.h"
#include "shell/scripts/completeness.h"
#include "shell/session/inspection.h"

namespace lockstep::shell {

class SessionCore;

Completeness python_completeness(SessionCore& session, const std::string& text);
protocol::Completions python_completions(SessionCore& session, const std::string& text, int64_t offset);
Description describe_python(SessionCore& session, const std::string& expression);

}  // namespace lockstep::shell
