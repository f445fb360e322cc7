#include "protocol/compiler_messages.h"

#include "protocol/json_fields.h"
#include "protocol/variant_json.h"

namespace lockstep {
LOCKSTEP_JSON(Versions, protocol, lockstep, libtorch, compiler)
}

namespace lockstep::protocol {

// Structs without fields.
#define LOCKSTEP_EMPTY_JSON(STRUCT)                                                             \
  static void to_json(nlohmann::json& json, const STRUCT&) { json = nlohmann::json::object(); } \
  static void from_json(const nlohmann::json&, STRUCT&) {}

LOCKSTEP_JSON(Compile, cell, text, ranks, optimize, debug, time_limit_s, directory, number, repeats)
LOCKSTEP_JSON(Cancel, cell)
LOCKSTEP_JSON(Settle, cell, loaded, steps_done)
LOCKSTEP_JSON(Forget, names, undo)
LOCKSTEP_EMPTY_JSON(ListNames)
LOCKSTEP_JSON(Complete, text, offset, ranks)
LOCKSTEP_JSON(Inspect, expression, ranks)
LOCKSTEP_JSON(IsComplete, text)
LOCKSTEP_JSON(Step, line, names)
LOCKSTEP_JSON(CompiledObject, ranks, name, entry, steps, source, frame)
LOCKSTEP_JSON(Diagnostic, severity, line, column, file, message)
LOCKSTEP_JSON(Compiled, cell, status, diagnostics, rendered, rendered_whole, objects, repeatable, ms)
LOCKSTEP_EMPTY_JSON(Settled)
LOCKSTEP_JSON(Name, name, kind, type, cell, ranks)
LOCKSTEP_JSON(Names, names)
LOCKSTEP_JSON(Completion, text, kind, detail)
LOCKSTEP_JSON(Completions, begin, end, completions)
LOCKSTEP_JSON(Inspection, found, type, declaration, comment, cell)
LOCKSTEP_JSON(Completeness, status, indent)
LOCKSTEP_JSON(CompilerReady, versions, prelude, ms)
LOCKSTEP_JSON(CompilerFailed, message)
LOCKSTEP_JSON(CompilerProgress, message)

static constexpr KindNames<CompilerRequest> kRequests = {"compile",  "settle",  "forget",      "list_names",
                                                         "complete", "inspect", "is_complete", "cancel"};
static constexpr KindNames<CompilerResponse> kResponses = {
    "compiled", "settled", "names", "completions", "inspection", "completeness", "ready", "failed", "progress"};

nlohmann::json encode(const CompilerRequest& request) { return encode_variant(request, kRequests); }
nlohmann::json encode(const CompilerResponse& response) { return encode_variant(response, kResponses); }
CompilerRequest decode_request(const nlohmann::json& header) {
  return decode_variant<CompilerRequest>(header, kRequests);
}
CompilerResponse decode_response(const nlohmann::json& header) {
  return decode_variant<CompilerResponse>(header, kResponses);
}

}  // namespace lockstep::protocol
