#include "protocol/worker_messages.h"

#include "protocol/json_fields.h"
#include "protocol/variant_json.h"

namespace lockstep {
LOCKSTEP_JSON(Versions, protocol, lockstep, libtorch, compiler)
}

namespace lockstep::protocol {

LOCKSTEP_JSON(Step, line, names)
LOCKSTEP_JSON(CellError, type, message, where, where_cell, where_line, root_cause, stack)

LOCKSTEP_JSON(Prelude, path)
LOCKSTEP_JSON(Load, cell, name, entry, steps, ranks)
LOCKSTEP_JSON(Drop, cell)
LOCKSTEP_JSON(Run, cell, number, object, object_number)
LOCKSTEP_JSON(Builtin, cell, name, arguments)
LOCKSTEP_JSON(Regroup, generation, ranks, timeout_s)
LOCKSTEP_JSON(Interrupt, cell)
LOCKSTEP_JSON(Abort, reason)
LOCKSTEP_JSON(Query, id, what, arguments)
LOCKSTEP_JSON(Credit, bytes)
LOCKSTEP_JSON(PeerDone, cell, rank, how, collectives)
LOCKSTEP_JSON(Configure, environment, directory)
static void to_json(nlohmann::json& json, const Shutdown&) { json = nlohmann::json::object(); }
static void from_json(const nlohmann::json&, Shutdown&) {}

LOCKSTEP_JSON(Hello, rank, pid, host, device, versions, cell_limit)
LOCKSTEP_JSON(Ready, threads)
LOCKSTEP_JSON(NotReady, message)
LOCKSTEP_JSON(Loaded, cell, ok, message, warning)
LOCKSTEP_JSON(Done, cell, status, steps_done, error, run_ms, collectives, regroup)
LOCKSTEP_JSON(Regrouped, generation, ok, message)
LOCKSTEP_JSON(Output, cell, stream)
LOCKSTEP_JSON(Value, cell, text, data)
LOCKSTEP_JSON(FindingMessage, finding)
LOCKSTEP_JSON(Waiting, cell, op, missing, where)
LOCKSTEP_JSON(LongWait, cell, entry, op)
LOCKSTEP_JSON(Dying, cell, error)
LOCKSTEP_JSON(Reply, id, body)

static constexpr KindNames<HubMessage> kHub = {"prelude",   "load",     "drop",   "run",    "regroup",
                                               "interrupt", "abort",    "query",  "credit", "peer_done",
                                               "configure", "shutdown", "builtin"};
static constexpr KindNames<WorkerMessage> kWorker = {"hello",     "ready",  "not_ready", "loaded",  "done",
                                                     "regrouped", "output", "value",     "finding", "waiting",
                                                     "long_wait", "dying",  "reply"};

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

nlohmann::json encode(const HubMessage& message) { return with_version(encode_variant(message, kHub)); }
nlohmann::json encode(const WorkerMessage& message) { return with_version(encode_variant(message, kWorker)); }
HubMessage decode_hub_message(const nlohmann::json& header) {
  return decode_variant<HubMessage>(checked(header), kHub);
}
WorkerMessage decode_worker_message(const nlohmann::json& header) {
  return decode_variant<WorkerMessage>(checked(header), kWorker);
}

}  // namespace lockstep::protocol
