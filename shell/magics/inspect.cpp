// EXPR? and EXPR?? show what a name or an expression is.
#include "protocol/error.h"
#include "shell/session/inspection.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

std::vector<std::string> known_names(SessionCore& session) {
  std::vector<std::string> names;
  if (session.language_of_cell() == Language::python) return names;
  const auto response = session.ask(protocol::ListNames{});
  if (const auto* list = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : list->names) names.push_back(name.name);
  return names;
}

CellOutcome inspect(MagicCall& call, bool with_source) {
  const std::string& expression = call.arguments;
  Description found = describe(call.session, expression, with_source);
  if (!found.found)
    throw UsageError("'" + expression + "' is not known" + did_you_mean(expression, known_names(call.session)) +
                     (call.session.options().job ? " in the selected frame" : "; %who lists the names of cells"));
  call.session.help(std::move(found.text), std::move(found.data));
  return {};
}

const RegisterMagic kInspect({.name = "?",
                              .summary = "what a name or an expression is: type, declaration, comment, cell",
                              .help = "Nothing runs. ?EXPR is the same, EXPR?? has the source as well. %NAME? is the "
                                      "help of a magic.",
                              .line = [](MagicCall& call) { return inspect(call, /*with_source=*/false); },
                              .verbatim = true,
                              .in_jobs = true,
                              .written = "EXPR?"});

const RegisterMagic kInspectSource({.name = "??",
                                    .summary = "the same, with the source of its definition",
                                    .help = "The source is that of the cell, or of the header, that defines it.",
                                    .line = [](MagicCall& call) { return inspect(call, /*with_source=*/true); },
                                    .verbatim = true,
                                    .in_jobs = true,
                                    .written = "EXPR??"});

}  // namespace
}  // namespace lockstep::shell
