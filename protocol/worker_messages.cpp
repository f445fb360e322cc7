#include "protocol/worker_messages.h"

#include "protocol/variant_json.h"

namespace lockstep::protocol {

namespace function {
LOCKSTEP_EMPTY_MESSAGE("barrier", Barrier)
LOCKSTEP_EMPTY_MESSAGE("preempted", Preempted)
LOCKSTEP_MESSAGE("python", Python, text, number, own_names, shown, rich, again, until, met, unknown, groups)
LOCKSTEP_MESSAGE("frame", Frame, move)
LOCKSTEP_EMPTY_MESSAGE("detach", Detach)
LOCKSTEP_MESSAGE("record", Record, steps)
}  // namespace function

// Found by the namespace of an alternative.
static void to_json(nlohmann::json& json, const Function& function) { json = encode_variant(function); }
static void from_json(const nlohmann::json& json, Function& function) { function = decode_part<Function>(json); }

LOCKSTEP_JSON(LeftOut, line, why)
LOCKSTEP_JSON(CellError, type, message, where, where_cell, where_line, root_cause, stack, traceback)

LOCKSTEP_MESSAGE("prelude", Prelude, path, output_window)
LOCKSTEP_MESSAGE("load", Load, cell, name, entry, steps, ranks, file)
LOCKSTEP_MESSAGE("drop", Drop, cell)
LOCKSTEP_MESSAGE("run", Run, cell, number, object, object_number, again, skip, groups, members)
LOCKSTEP_MESSAGE("builtin", Builtin, cell, function)
LOCKSTEP_MESSAGE("regroup", Regroup, generation, ranks, members, timeout_s, world_size, backend, threads)
LOCKSTEP_MESSAGE("interrupt", Interrupt, cell)
LOCKSTEP_MESSAGE("abort", Abort, reason)
LOCKSTEP_MESSAGE("mismatch", Mismatch, incarnation, message, finding)
LOCKSTEP_MESSAGE("query", Query, id, question)
LOCKSTEP_MESSAGE("credit", Credit, bytes)
LOCKSTEP_MESSAGE("peers_done", PeersDone, cell, ranks, how, collectives)
LOCKSTEP_MESSAGE("configure", Configure, environment, directory)
LOCKSTEP_EMPTY_MESSAGE("shutdown", Shutdown)

LOCKSTEP_MESSAGE("hello", Hello, rank, pid, host, machine, device, versions, cell_limit, where)
LOCKSTEP_MESSAGE("ready", Ready, threads)
LOCKSTEP_MESSAGE("not_ready", NotReady, message)
LOCKSTEP_MESSAGE("loaded", Loaded, cell, ok, message, warning)
LOCKSTEP_MESSAGE("done", Done, cell, status, steps_done, error, run_ms, collectives, regroup, meetings, groups,
                 left_out)
LOCKSTEP_MESSAGE("regrouped", Regrouped, generation, ok, message)
LOCKSTEP_MESSAGE("output", Output, cell, stream)
LOCKSTEP_MESSAGE("value", Value, cell, text, data, as_range, label)
LOCKSTEP_MESSAGE("progress", Progress, cell, loop, parent, label, line, done, total, elapsed_s, state)
LOCKSTEP_MESSAGE("finding", FindingMessage, finding)
LOCKSTEP_MESSAGE("waiting", Waiting, cell, op, missing, where)
LOCKSTEP_MESSAGE("long_wait", LongWait, cell, entry, op)
LOCKSTEP_MESSAGE("dying", Dying, cell, error)
LOCKSTEP_MESSAGE("reply", Reply, id, body)

static nlohmann::json with_version(nlohmann::json header) {
  header["v"] = kProtocolVersion;
  return header;
}

static const nlohmann::json& checked(const nlohmann::json& header) {
  if (header.is_object() && header.value("v", 0) != kProtocolVersion)
    throw ChannelError("protocol " + std::to_string(header.value("v", 0)) + " met protocol " +
                       std::to_string(kProtocolVersion) + ": use a shell and a worker of the same build");
  return header;
}

nlohmann::json encode(const HubMessage& message) { return with_version(encode_variant(message)); }
nlohmann::json encode(const WorkerMessage& message) { return with_version(encode_variant(message)); }
HubMessage decode_hub_message(const nlohmann::json& header) { return decode_variant<HubMessage>(checked(header)); }
WorkerMessage decode_worker_message(const nlohmann::json& header) {
  return decode_variant<WorkerMessage>(checked(header));
}

}  // namespace lockstep::protocol
