#include "python/operators/agent_handlers.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "collectives/watch/device_queries.h"
#include "collectives/watched_rank.h"
#include "protocol/files.h"
#include "protocol/utf8.h"
#include "protocol/version.h"
#include "python/agent/agent.h"
#include "python/agent/stacks.h"
#include "python/agent/uncaught.h"
#include "python/operators/interpreter_use.h"
#include "python/operators/invitations.h"
#include "python/operators/job_backend.h"
#include "python/operators/job_log.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

/// Finds a function of libtorch_cuda, which this library is not linked with; null where it isn't loaded.
template <typename Function>
Function* find_in_torch_cuda(const char* symbol) {
  void* const library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const function = ::dlsym(library, symbol);
  ::dlclose(library);  // what loaded it keeps it
  return reinterpret_cast<Function*>(function);
}

/// Returns the recorder of NCCL's groups, as JSON without stacks; empty where there is none.
std::string nccl_json(bool collectives) {
  // c10d::dump_nccl_trace_json(bool includeCollectives, bool onlyActive)
  const auto dump = find_in_torch_cuda<std::string(bool, bool)>("_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb");
  std::string text;
  if (dump) dist::query_devices([&] { text = dump(collectives, false); });
  return text;
}

/// Returns the recorder of NCCL's groups as a pickle, or nothing. `stacks` takes the interpreter's lock.
std::string nccl_pickle(bool stacks) {
  // c10d::dump_nccl_trace(bool includeCollectives, bool includeStackTraces, bool onlyActive)
  const auto dump = find_in_torch_cuda<std::string(bool, bool, bool)>("_ZN4c10d15dump_nccl_traceB5cxx11Ebbb");
  std::string pickle;
  if (dump) dist::query_devices([&] { pickle = dump(true, stacks, false); });
  return pickle;
}

/// Adds the numbers of each group's newest collectives, from the recorder: {"0": {"enqueued": 4, "completed": 3}}.
void add_progress(json& groups, const std::string& text) {
  const json dump = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!dump.is_object()) return;
  const auto number = [](const json& status, const char* name) {
    const json value = status.value(name, json());
    return value.is_string()   ? std::atoll(value.get_ref<const std::string&>().c_str())
           : value.is_number() ? value.get<long long>()
                               : -1;
  };
  const json all = dump.value("pg_status", json::object());
  for (const auto& [name, status] : all.items()) {
    if (!status.is_object()) continue;
    groups[name] = {{"enqueued", number(status, "last_enqueued_collective")},
                    {"completed", number(status, "last_completed_collective")}};
  }
}

json progress() {
  json groups = json::object();
  add_progress(groups, c10d::dump_fr_trace_json(/*includeCollectives=*/false, /*onlyActive=*/false));
  add_progress(groups, nccl_json(false));
  groups.update(progress_of_job_log());  // which knows the ends of Gloo's collectives, too
  return groups;
}

json status(const json&) {
  const protocol::JobRank rank = agent::described_rank();
  const int64_t steps = last_step();
  return {{"rank", rank.rank},       {"world_size", rank.world_size}, {"pid", rank.pid},
          {"started", rank.started}, {"groups", progress()},          {"step", steps > 0 ? json(steps) : json()},
          {"torch", rank.torch}};
}

/// A character for each byte, U+0000 to U+00FF: JSON has no bytes.
std::string bytes_as_text(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, static_cast<unsigned char>(c));
  return text;
}

/// "stacks": true asks for the Python frames of each call, which takes the interpreter's lock for a moment. Without
/// frames where the interpreter is about to end.
json collectives(const json& request) {
  json dumps = json::array();
  const InterpreterUse use(request.value("stacks", true));
  if (use) {
    const auto add = [&](const std::string& pickle) {
      if (!pickle.empty()) dumps.push_back({{"pickle", bytes_as_text(pickle)}});
    };
    add(c10d::dump_fr_trace(/*includeCollectives=*/true, /*includeStackTraces=*/true, /*onlyActive=*/false));
    add(nccl_pickle(/*stacks=*/true));
  } else {
    dumps.push_back({{"text", c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false)}});
    if (std::string text = nccl_json(true); !text.empty()) dumps.push_back({{"text", std::move(text)}});
  }
  return {{"dumps", dumps}};
}

json collectives_without_stacks(const json& request) {
  json without = request;
  without["stacks"] = false;
  return collectives(without);
}

/// Adds the number of the last collective of each group, from the recorder.
void add_last_calls(std::map<std::string, int64_t>& calls, const std::string& text) {
  const json dump = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!dump.is_object()) return;
  try {
    for (const json& call : dump.value("entries", json::array())) {
      if (call.value("is_p2p", true)) continue;
      int64_t& last = calls[call.at("process_group").at(0).get<std::string>()];
      last = std::max(last, call.at("collective_seq_id").get<int64_t>());
    }
  } catch (
      const json::exception&) {  // written otherwise by a version of torch: how the rank ended is said all the same
  }
}

/// Writes dumps for a shell that watches: the process, with all that it could be asked, is about to go.
void leave_dumps(bool stacks) {
  const auto leave = [](bool nccl, const std::string& pickle) {
    try {
      protocol::write_at_once(protocol::rank_trace(agent::job_folder(), agent::described_rank().rank, nccl), pickle);
    } catch (const std::exception&) {  // a full disk: the exception is known all the same
    }
  };
  if (agent::job_folder().empty()) return;
  leave(false, c10d::dump_fr_trace(/*includeCollectives=*/true, stacks, /*onlyActive=*/false));
  if (const std::string pickle = nccl_pickle(stacks); !pickle.empty()) leave(true, pickle);
}

/// Writes dumps before an exception of a C++ thread ends the process. The frames of Python need the interpreter's lock,
/// which the rank may keep for ever, so dumps without them come first.
void leave_dumps_of_abort() {
  const auto left = std::make_shared<std::promise<void>>();
  std::thread([left] {
    leave_dumps(/*stacks=*/false);
    if (const InterpreterUse use; use) leave_dumps(/*stacks=*/true);
    left->set_value();
  }).detach();
  left->get_future().wait_for(std::chrono::seconds(10));
}

}  // namespace

void end_agent(const json& end) {
  finish_interpreter_uses();
  agent::end_lending();
  auto said = end.get<protocol::RankEnd>();
  for (const std::string& text :
       {c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false), nccl_json(true)})
    add_last_calls(said.calls, text);
  if (!std::getenv(protocol::kJobVariable))
    remove_job_log();
  else if (said.how == "threw")
    leave_dumps(/*stacks=*/true);
  else if (!job_log())
    leave_dumps(/*stacks=*/false);  // for the times
  agent::set_end(said);
}

json start_agent(const json& facts) {
  static std::once_flag once;
  std::call_once(once, [] {
    agent::add_handler("status", status);
    agent::add_handler("collectives", collectives, agent::Runs::aside);
    agent::add_handler("collectives_without_stacks", collectives_without_stacks);
    expect_invitations();
    agent::add_handler("stacks", stacks);
    expect_aborts();
    agent::add_handler("mismatch", dist::take_mismatch, agent::Runs::aside);
    if (std::getenv(protocol::kJobVariable))
      agent::report_uncaught_exceptions(/*is_program=*/false, leave_dumps_of_abort);
  });
  protocol::JobRank rank;
  bool launched = agent::rank_from_environment(rank);
  if (const json& number = facts.at("rank"); !number.is_null()) {
    rank.rank = number;
    rank.world_size = facts.at("world_size");
    if (!launched) rank.local_rank = rank.rank;
    launched = true;
  }
  if (!launched && facts.value("only_with_launcher", false)) return {{"problem", "no launcher has given it a rank"}};
  rank.torch = facts.at("torch");
  rank.python = facts.at("python");
  rank.script = facts.at("script");
  rank.lockstep = kVersion;
  const std::string problem = agent::start(rank);
  return problem.empty() ? json{{"folder", agent::job_folder()}} : json{{"problem", problem}};
}

}  // namespace lockstep::python
