#include "protocol/compiler_messages.h"

#include "protocol/variant_json.h"

namespace lockstep {
LOCKSTEP_DECLARED_JSON(Versions, protocol, lockstep, libtorch, compiler)
}

namespace lockstep::protocol {

LOCKSTEP_DECLARED_JSON(Step, line, names)
LOCKSTEP_JSON(CompiledObject, ranks, name, entry, steps, source, frame)
LOCKSTEP_JSON(Diagnostic, severity, line, column, file, message)
LOCKSTEP_JSON(Name, name, kind, type, cell, ranks)
LOCKSTEP_JSON(Completion, text, kind, detail)
LOCKSTEP_JSON(Signature, label, parameters, active)

LOCKSTEP_MESSAGE("compile", Compile, cell, text, ranks, optimize, debug, time_limit_s, directory, number, repeats)
LOCKSTEP_MESSAGE("cancel", Cancel, cell)
LOCKSTEP_MESSAGE("settle", Settle, cell, loaded, steps_done)
LOCKSTEP_MESSAGE("forget", Forget, names, undo, rank, lost, like)
LOCKSTEP_EMPTY_MESSAGE("list_names", ListNames)
LOCKSTEP_MESSAGE("complete", Complete, text, offset, ranks, signatures_only)
LOCKSTEP_MESSAGE("inspect", Inspect, expression, ranks)

LOCKSTEP_MESSAGE("compiled", Compiled, cell, status, diagnostics, rendered, rendered_whole, objects, repeatable, ms)
LOCKSTEP_EMPTY_MESSAGE("settled", Settled)
LOCKSTEP_MESSAGE("names", Names, names)
LOCKSTEP_MESSAGE("completions", Completions, begin, end, completions, signatures)
LOCKSTEP_MESSAGE("inspection", Inspection, found, type, declaration, comment, source, where, cell)
LOCKSTEP_MESSAGE("ready", CompilerReady, versions, prelude, ms)
LOCKSTEP_MESSAGE("failed", CompilerFailed, message)
LOCKSTEP_JSON(StartStep, what, number, count, last_s)
LOCKSTEP_MESSAGE("progress", CompilerProgress, message, step)

nlohmann::json encode(const CompilerRequest& request) { return encode_variant(request); }
nlohmann::json encode(const CompilerResponse& response) { return encode_variant(response); }
CompilerRequest decode_request(const nlohmann::json& header) { return decode_variant<CompilerRequest>(header); }
CompilerResponse decode_response(const nlohmann::json& header) { return decode_variant<CompilerResponse>(header); }

}  // namespace lockstep::protocol
