// %page shows a value in full, in a pager where there is a terminal.
#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome page(MagicCall& call) {
  const std::string expression = call.arguments.empty() ? "_" : std::string(call.arguments);
  SessionCore& session = call.session;
  std::vector<ValueEvent> values;
  const CodeResult result = session.run_capturing("__lockstep::show_in_full(); " + expression, {}, call.line, values);
  std::string text;
  for (const ValueEvent& value : values) {
    if (!text.empty()) text += "\n";
    if (value.ranks != result.ranks || values.size() > 1) text += value.ranks.words() + ":\n";
    text += value.text;
    if (!text.ends_with('\n')) text += '\n';
  }
  if (!text.empty())
    session.show(PageEvent{session.current_number(), std::move(text)});
  else if (result.status == CellStatus::ok)
    throw UsageError("%page " + expression + ": it has no value to show");
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kPage(
    {.name = "page",
     .summary = "a value in full: all elements of tensors and containers; in a pager on a terminal",
     .help =
         "The pager is $PAGER, or less. What fits on the screen is shown without one. Where ranks differ, their values "
         "follow one\nanother. In a notebook the value comes to the pager at the bottom; elsewhere its text is "
         "written.",
     .takes = {{"[EXPR]", "a name or an expression; the last value (_) if it is left out"}},
     .line = page,
     .verbatim = true});

}  // namespace
}  // namespace lockstep::shell
