// The operators torch.ops.lockstep.*, which the package `lockstep` calls. Each hands its arguments to an inspector and
// returns the report; nothing is decided here.
#include <torch/library.h>

#include <memory>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "collectives/log/process_identity.h"
#include "collectives/watch/spelling.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/trace/program_log.h"
#include "lockstep/inspect.h"
#include "protocol/version.h"
#include "protocol/worker_messages.h"
#include "python/agent/agent.h"
#include "python/agent/crash_frames.h"
#include "python/agent/stacks.h"
#include "python/operators/agent_handlers.h"
#include "python/operators/attach.h"
#include "python/operators/call.h"
#include "python/operators/call_sites.h"
#include "python/operators/compare.h"
#include "python/operators/findings.h"
#include "python/operators/inspect_with.h"
#include "python/operators/invitations.h"
#include "python/operators/job_backend.h"
#include "python/operators/job_hooks.h"
#include "python/operators/job_log.h"
#include "python/operators/record.h"
#include "python/operators/subjects.h"
#include "python/operators/watches.h"

namespace lockstep::python {
namespace {

using inspect::InspectionCall;
using nlohmann::json;

json verify(const Call& call) {
  const auto options = verify_options(call);
  return inspect_with(call, {.inspector = "verify"}, options, [&] {
    return report_json(inspect::verify_sharded(subject_of(call, call.arguments.at("subject")), options));
  });
}

json grads(const Call& call) {
  auto options = common_options<inspect::GradsOptions>(call.arguments);
#define LOCKSTEP_OPTION LOCKSTEP_READ_OPTION
#include "inspectors/options/grads.def"
  return inspect_with(call, {.inspector = "grads"}, options, [&] {
    return report_json(inspect::grads_of(gradients_of(call, call.arguments.at("subject")), options));
  });
}

json ranks(const Call& call) {
  const auto options = common_options<inspect::RanksOptions>(call.arguments);
  return inspect_with(call, {.inspector = "ranks"}, options, [&] {
    const auto report = inspect::ranks(options);
    return report_json(report, table_of(report));
  });
}

json data(const Call& call) {
  auto options = common_options<inspect::DataOptions>(call.arguments);
#define LOCKSTEP_OPTION LOCKSTEP_READ_OPTION
#include "inspectors/options/data.def"
  return inspect_with(call, {.inspector = "data"}, options, [&] {
    const auto report = inspect::data_of(samples_of(call, call.arguments.at("order")), options);
    json result = report_json(report);
    result["samples"] = report.samples;
    result["batches"] = report.batches;
    result["distinct"] = report.distinct;
    result["shared"] = report.shared;
    result["omitted"] = report.omitted ? json(*report.omitted) : json();
    return result;
  });
}

/// Returns the hash of the tensors together.
json hash(const Call& call) {
  inspect::Hash result{};
  for (const inspect::Fingerprint& each : inspect::fingerprint(call.tensors))
    result = inspect::combine(result, each.hash);
  return {{"hash", result}};
}

json memory(const Call& call) {
  const auto options = common_options<inspect::MemoryOptions>(call.arguments);
  return inspect_with(call, {.inspector = "memory"}, options, [&] {
    const auto report = inspect::memory(memory_of(call, call.arguments.at("named")), options);
    json result = report_json(report, table_of(report));
    result["ranks"] = report.ranks;
    return result;
  });
}

json timeline(const Call& call) {
  const auto options = common_options<inspect::TimelineOptions>(call.arguments);
  return inspect_with(call, {.inspector = "timeline"}, options, [&] {
    const auto report = inspect::timeline(call.arguments.at("path"), options);
    json result = report_json(report, table_of(report));
    result["operators"] = report.operators;
    result["collectives"] = report.collectives;
    result["buckets"] = report.buckets;
    result["left_out"] = report.left_out;
    result["clock_error"] = report.clock_error;
    return result;
  });
}

// ---- inspectors that run a step of Python --------------------------------------------------------------------------

/// The state that a step changes. Tensors are saved here; Python itself restores what else its objects have, before
/// each run and after the last.
struct Step {
  explicit Step(const Call& call)
      : function(python_function(call.arguments.at("step_function"))),
        names(names_of(call, call.arguments.at("names"))) {
    save_all(saved, call, call.arguments.at("state"));
  }
  void operator()() const { call_python(function); }

  PythonFunction function;
  inspect::TensorNames names;
  inspect::SavedState saved;
};

json nan_trace(const Call& call) {
  const auto options = common_options<inspect::NanOptions>(call.arguments);
  return inspect_with(call, {.inspector = "nan"}, options, [&] {
    const Step step(call);
    const auto run = [&] {
      step();
      return take_given().tensors;  // what the step returned
    };
    return report_json(inspect::detail::replay_traced(run, step.saved, step.names, options));
  });
}

json first_difference(const Call& call) {
  auto options = common_options<inspect::LockstepOptions>(call.arguments);
#define LOCKSTEP_OPTION LOCKSTEP_READ_OPTION
#include "inspectors/options/lockstep.def"
  return inspect_with(call, {.inspector = "lockstep"}, options, [&] {
    const Step step(call);
    if (!call.arguments.at("repeat").get<bool>())
      return report_json(inspect::detail::lockstep_once([&] { step(); }, step.names, options));
    // A wrapper of Python lays out its buckets in its first steps, which then differ from the later ones.
    const inspect::UncountedSteps uncounted;
    for (int64_t i = 0; i < call.arguments.at("unrecorded_runs").get<int64_t>(); ++i) {
      try {
        step();
      } catch (...) {  // passed on, once the state is restored
        step.saved.restore();
        throw;
      }
      step.saved.restore();
    }
    return report_json(inspect::detail::lockstep_twice([&] { step(); }, step.saved, step.names, options));
  });
}

json time_sync(const Call& call) {
  auto options = common_options<inspect::TimeSyncOptions>(call.arguments);
#define LOCKSTEP_OPTION LOCKSTEP_READ_OPTION
#include "inspectors/options/time_sync.def"
  return inspect_with(call, {.inspector = "time_sync"}, options, [&] {
    const PythonFunction step = python_function(call.arguments.at("step_function"));
    const PythonFunction state = python_function(call.arguments.at("state_function"));
    // Python gives its tensors when they are saved: an optimizer has more of them after its first step.
    const auto save = [&] {
      call_python(state);
      const Call given = take_given();
      auto saved = std::make_shared<inspect::SavedState>();
      save_all(*saved, given, given.arguments.at("indices"));
      return saved;
    };
    enum { kRewindToStart = 1, kRewindToWarm = 2, kSaveWarm = 3 };  // of Python's part of the state
    const auto before = save();
    std::shared_ptr<inspect::SavedState> warm;
    inspect::detail::StepToTime timed;
    timed.ranks = inspect::live_ranks();
    if (const json& group = call.arguments.at("step_group"); !group.is_null()) {
      const auto name = group.at("name").get<std::string>();
      timed.group = {.handle = c10d::resolve_process_group(name), .name = name, .ranks = group.at("ranks")};
      timed.ranks = RankSet(timed.group.ranks);
    }
    timed.run = [&](bool synchronise) { call_python(step, synchronise ? 1 : 0); };
    timed.keep = [&] {
      call_python(state, kSaveWarm);
      take_given();
      warm = save();
    };
    timed.rewind = [&] {
      warm->rewind();
      call_python(state, kRewindToWarm);
    };
    timed.restore = [&] {
      before->restore();
      call_python(state, kRewindToStart);
    };
    const auto report = inspect::detail::time_step(timed, options);
    json result = report_json(report, table_of(report));
    result["synchronised"] = report.synchronised;
    result["unsynchronised"] = report.unsynchronised;
    result["exposed"] = report.exposed;
    result["reductions"] = report.reductions;
    result["reduced_bytes"] = report.reduced_bytes;
    result["reduction"] = report.reduction ? json(report.reduction->median) : json();
    result["hidden"] = report.hidden ? json(*report.hidden) : json();
    result["slowest"] = report.slowest;
    result["slower_by"] = report.slower_by;
    return result;
  });
}

// ---- the rest ------------------------------------------------------------------------------------------------------

/// Sets where inspectors look, and what they name, in a program of Python.
void use_python_hooks(const Call& call) {
  use_python_call_sites(call.arguments.at("skipped"), call.arguments.at("folder"));
  inspect::set_program_log(job_log);
  set_language(Language::python);
}

json start(const Call& call) {
  use_python_hooks(call);
  return {{"protocol", kProtocolVersion},
          {"lockstep", kVersion},
          {"output_window", protocol::kOutputWindow},
          {"machine", dist::machine_identity()}};
}

json agent_start(const Call& call) { return start_agent(call.arguments); }

json launcher_rank(const Call&) {
  protocol::JobRank rank;
  if (!agent::rank_from_environment(rank)) return {{"is_known", false}, {"rank", 0}, {"world_size", 1}};
  return {{"is_known", true}, {"rank", rank.rank}, {"world_size", rank.world_size}};
}

json agent_folder(const Call&) { return {{"folder", agent::job_folder()}, {"is_watched", agent::is_watched()}}; }

json expect_shells(const Call&) { return expect_invitations(); }

json set_stopped_at(const Call& call) {
  set_stopped(call.arguments.at("place"));
  return json::object();
}

json report_stop_of(const Call& call) {
  report_stop(call.arguments.at("is_served"), call.arguments.at("limit_s"));
  return json::object();
}

json take_shell(const Call&) { return take_invitation(); }

json agent_end(const Call& call) {
  end_agent(call.arguments.at("end"));
  return json::object();
}

// These go around faulthandler.register (python/agent/stacks.h).
json agent_begin_borrowing(const Call&) {
  agent::begin_borrowing();
  return json::object();
}

json agent_end_borrowing(const Call& call) {
  agent::end_borrowing(call.arguments.at("file"));
  return json::object();
}

json list_job_groups(const Call&) { return job_groups(); }

json native_stack(const Call&) { return agent::take_stacks(); }

json write_frames_of_crashes(const Call&) {
  agent::write_frames_of_crashes();
  return json::object();
}

json attach_ranks(const Call& call) {
  const auto options = common_options<inspect::RanksOptions>(call.arguments);
  const auto failed = attach(call.arguments.at("group"), {.inspector = "attach"}, options);
  return report_json(failed ? *failed : inspect::Report());
}

json detach_ranks(const Call& call) {
  detach(call.arguments.value("generation", int64_t{0}));
  return json::object();
}

json count_step(const Call&) {
  inspect::count_step();
  return {{"findings", take_found_by_watches()}, {"stop", stops_at(inspect::counted_steps())}};
}

json steps(const Call&) { return {{"steps", inspect::counted_steps()}}; }

json give_tensors(const Call& call) {
  give(call);
  return json::object();
}

/// C++ cells have replaced the hooks of this package while they ran.
json take_hooks_back(const Call& call) {
  collect_findings();
  use_python_hooks(call);
  return json::object();
}

json take(const Call&) { return {{"findings", take_findings()}}; }

json draw_findings(const Call& call) {
  return {{"text", draw(call.arguments.at("findings"), call.arguments.at("colour"), call.arguments.at("unicode"),
                        call.arguments.at("width"))}};
}

}  // namespace

#define LOCKSTEP_OPERATOR(NAME, FUNCTION)                                     \
  m.def(NAME "(Tensor[] tensors, str call) -> str",                           \
        [](const std::vector<at::Tensor>& tensors, const std::string& call) { \
          return run_operator(tensors, call, FUNCTION);                       \
        })

TORCH_LIBRARY(lockstep, m) {
  LOCKSTEP_OPERATOR("start", start);
  LOCKSTEP_OPERATOR("agent_start", agent_start);
  LOCKSTEP_OPERATOR("agent_end", agent_end);
  LOCKSTEP_OPERATOR("agent_begin_borrowing", agent_begin_borrowing);
  LOCKSTEP_OPERATOR("agent_end_borrowing", agent_end_borrowing);
  LOCKSTEP_OPERATOR("launcher_rank", launcher_rank);
  LOCKSTEP_OPERATOR("agent_folder", agent_folder);
  LOCKSTEP_OPERATOR("expect_invitations", expect_shells);
  LOCKSTEP_OPERATOR("set_stopped", set_stopped_at);
  LOCKSTEP_OPERATOR("report_stop", report_stop_of);
  LOCKSTEP_OPERATOR("take_invitation", take_shell);
  LOCKSTEP_OPERATOR("attach", attach_ranks);
  LOCKSTEP_OPERATOR("detach", detach_ranks);
  LOCKSTEP_OPERATOR("make_job_backend", make_job_backend);
  LOCKSTEP_OPERATOR("job_groups", list_job_groups);
  LOCKSTEP_OPERATOR("resize_job", resize_job);
  LOCKSTEP_OPERATOR("compare_job_groups", compare_job_groups);
  LOCKSTEP_OPERATOR("reconnect_job_backend", reconnect_job_backend);
  LOCKSTEP_OPERATOR("abort_job_groups", abort_job_groups);
  LOCKSTEP_OPERATOR("take_mismatch", [](const Call& call) { return dist::take_mismatch(call.arguments); });
  LOCKSTEP_OPERATOR("job_aborts", job_aborts);
  LOCKSTEP_OPERATOR("end_job_abort", end_job_abort);
  LOCKSTEP_OPERATOR("enter_cell", enter_cell);
  LOCKSTEP_OPERATOR("leave_cell", leave_cell);
  LOCKSTEP_OPERATOR("make_wrapper", make_wrapper);
  LOCKSTEP_OPERATOR("calls_in_flight", calls_in_flight);
  LOCKSTEP_OPERATOR("native_stack", native_stack);
  LOCKSTEP_OPERATOR("write_frames_of_crashes", write_frames_of_crashes);
  LOCKSTEP_OPERATOR("hook_group", hook_group);
  LOCKSTEP_OPERATOR("verify", verify);
  LOCKSTEP_OPERATOR("grads", grads);
  LOCKSTEP_OPERATOR("hash", hash);
  LOCKSTEP_OPERATOR("ranks", ranks);
  LOCKSTEP_OPERATOR("data", data);
  LOCKSTEP_OPERATOR("memory", memory);
  LOCKSTEP_OPERATOR("timeline", timeline);
  LOCKSTEP_OPERATOR("nan_trace", nan_trace);
  LOCKSTEP_OPERATOR("first_difference", first_difference);
  LOCKSTEP_OPERATOR("time_sync", time_sync);
  LOCKSTEP_OPERATOR("watch", watch);
  LOCKSTEP_OPERATOR("watch_grads", watch_grads);
  LOCKSTEP_OPERATOR("nan_watch", nan_watch);
  LOCKSTEP_OPERATOR("record_operators", record_operators);
  LOCKSTEP_OPERATOR("watch_memory", watch_memory);
  LOCKSTEP_OPERATOR("nan_status", nan_status);
  LOCKSTEP_OPERATOR("watch_cost", watch_cost);
  LOCKSTEP_OPERATOR("close", close_watch);
  LOCKSTEP_OPERATOR("count_step", count_step);
  LOCKSTEP_OPERATOR("steps", steps);
  LOCKSTEP_OPERATOR("give", give_tensors);
  LOCKSTEP_OPERATOR("record_mode", record_mode);
  LOCKSTEP_OPERATOR("record_step", record_step);
  LOCKSTEP_OPERATOR("record_stop", record_stop);
  LOCKSTEP_OPERATOR("replay_step", replay_step);
  LOCKSTEP_OPERATOR("replay_fill", replay_fill);
  LOCKSTEP_OPERATOR("replay_compare", replay_compare);
  LOCKSTEP_OPERATOR("replay_conclusion", replay_conclusion);
  LOCKSTEP_OPERATOR("take_hooks_back", take_hooks_back);
  LOCKSTEP_OPERATOR("take_findings", take);
  LOCKSTEP_OPERATOR("draw", draw_findings);
  LOCKSTEP_OPERATOR("compare_open", compare_open);
  LOCKSTEP_OPERATOR("compare_name", compare_name);
  LOCKSTEP_OPERATOR("compare_note", compare_note);
  LOCKSTEP_OPERATOR("compare_end_step", compare_end_step);
  LOCKSTEP_OPERATOR("compare_close", compare_close);
  // These are called for every output of a module, hence without JSON.
  m.def("compare_piece(Tensor tensor, int[] place, int[] shape, int[] offset) -> ()", compare_piece);
  m.def("compare_replace(Tensor(a!) tensor, int[] place, bool stays) -> ()", compare_replace);
  m.def("compare_samples(Tensor[] inputs, int step, int micro_batch) -> int", compare_samples);
}

}  // namespace lockstep::python
