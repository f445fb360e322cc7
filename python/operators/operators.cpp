// The operators torch.ops.lockstep.*, which the package `lockstep` calls. Each hands its arguments to an inspector and
// returns the report; nothing is decided here.
#include <torch/library.h>

#include <map>
#include <memory>

#include "inspectors/inspect.h"
#include "protocol/version.h"
#include "protocol/worker_messages.h"
#include "python/agent/agent.h"
#include "python/agent/stacks.h"
#include "python/operators/agent_handlers.h"
#include "python/operators/attach.h"
#include "python/operators/call.h"
#include "python/operators/call_sites.h"
#include "python/operators/findings.h"
#include "python/operators/invitations.h"
#include "python/operators/job_backend.h"
#include "python/operators/job_hooks.h"
#include "python/operators/subjects.h"

namespace lockstep::python {
namespace {

using inspect::InspectionCall;
using nlohmann::json;

/// Attaches, and calls `inspector` unless the ranks could not meet.
template <typename Options, typename Inspector>
json inspect_with(const Call& call, InspectionCall what, const Options& options, Inspector&& inspector) {
  what.object = options.name();
  if (what.type.empty()) what.type = call.arguments.value("type", std::string());
  if (auto failed = attach(call.arguments.at("group"), what, options)) return report_json(*failed);
  return inspector();
}

inspect::VerifyOptions verify_options(const json& arguments) {
  auto options = common_options<inspect::VerifyOptions>(arguments);
  const std::string method = arguments.at("method");
  if (method == "broadcast")
    options.method(inspect::Method::kBroadcast);
  else if (method == "all_gather")
    options.method(inspect::Method::kAllGather);
  else if (method != "fingerprint")
    throw dist::ArgumentError("verify: there is no method '" + method +
                              "'; there are 'fingerprint', 'broadcast' and 'all_gather'");
  options.rtol(arguments.at("rtol")).atol(arguments.at("atol"));
  return options;
}

json verify(const Call& call) {
  const auto options = verify_options(call.arguments);
  return inspect_with(call, {.inspector = "verify"}, options, [&] {
    return report_json(inspect::verify_sharded(subject_of(call, call.arguments.at("subject")), options));
  });
}

json grads(const Call& call) {
  auto options = common_options<inspect::GradsOptions>(call.arguments);
  options.local(call.arguments.at("local")).threshold(call.arguments.at("threshold"));
  if (const json& factor = call.arguments.at("factor"); !factor.is_null()) options.factor(factor.get<double>());
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
  const auto number = [&](const char* name) {
    const json& value = call.arguments.at(name);
    return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
  };
  options.size(number("size")).batch_size(number("batch_size")).epoch(number("epoch"));
  options.join(call.arguments.at("join"));
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
    result["left_out"] = report.left_out;
    result["clock_error"] = report.clock_error;
    return result;
  });
}

// ---- inspectors that run a step of Python --------------------------------------------------------------------------

/// The state that a step changes: tensors are saved here; Python itself restores what else its objects have, before
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
  options.max_operators(call.arguments.at("max_operators"));
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
  options.warm_up(call.arguments.at("warm_up")).steps(call.arguments.at("steps"));
  options.straggler(call.arguments.at("straggler"));
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
    result["slowest"] = report.slowest;
    result["slower_by"] = report.slower_by;
    return result;
  });
}

// ---- watches, which live until they are closed ---------------------------------------------------------------------

/// Watches by the number that Python has for them. Used by the program's own thread.
template <typename Watch>
std::map<int64_t, std::unique_ptr<Watch>>& watches() {
  static auto* all = new std::map<int64_t, std::unique_ptr<Watch>>;  // their destructors must not run at exit
  return *all;
}
int64_t next_watch = 1;

template <typename Watch, typename... Arguments>
json keep(Arguments&&... arguments) {
  watches<Watch>()[next_watch] = std::make_unique<Watch>(std::forward<Arguments>(arguments)...);
  return {{"watch", next_watch++}};
}

/// What watches have found in the step that is counted, with their numbers; on every rank, where each may raise.
thread_local json found_by_watches = json::array();

json watch(const Call& call) {
  auto options = verify_options(call.arguments);
  const auto what = [&] {
    const auto subject = subject_of(call, call.arguments.at("subject"));
    // Python describes the object anew at each check: it may have changed.
    const auto now = [function = python_function(call.arguments.at("subject_function"))] {
      call_python(function);
      const Call given = take_given();
      return subject_of(given, given.arguments);
    };
    const auto first_then_now = [common = subject.common, first = true, now]() mutable {
      return std::exchange(first, false) ? common : now().common;
    };
    const auto verify = [now](const inspect::VerifyOptions& each) { return inspect::verify_sharded(now(), each); };
    const auto found = [number = next_watch](const inspect::Report& report) {
      json result = report_json(report);
      for (json& each : result.at("findings"))
        found_by_watches.push_back({{"watch", number}, {"finding", std::move(each)}});
    };
    return keep<inspect::Watch>(first_then_now, call.arguments.at("every").get<int64_t>(), options, verify, found);
  };
  return inspect_with(call, {.inspector = "watch"}, options, what);
}

json watch_grads(const Call& call) {
  count_collectives_of(call.arguments.at("groups"));
  return keep<inspect::GradWatch>(gradients_of(call, call.arguments.at("subject")));
}

json nan_watch(const Call& call) {
  const auto options = common_options<inspect::NanOptions>(call.arguments);
  return inspect_with(call, {.inspector = "nan"}, options,
                      [&] { return keep<inspect::NanWatch>(names_of(call, call.arguments.at("names"))); });
}

json nan_status(const Call& call) {
  const auto status = watches<inspect::NanWatch>().at(call.arguments.at("watch").get<int64_t>())->status();
  return {{"steps", status.steps},   {"gradients", status.gradients}, {"parameters", status.parameters},
          {"losses", status.losses}, {"bad_steps", status.bad_steps}, {"seconds", status.seconds}};
}

json watch_cost(const Call& call) {
  const auto cost = watches<inspect::Watch>().at(call.arguments.at("watch").get<int64_t>())->cost();
  return {{"steps", cost.steps}, {"checks", cost.checks}, {"seconds", cost.seconds}, {"of_seconds", cost.of_seconds}};
}

json record_operators(const Call&) { return keep<inspect::OperatorRecording>(); }

json watch_memory(const Call&) { return keep<inspect::MemoryWatch>(); }

json close(const Call& call) {
  const int64_t number = call.arguments.at("watch");
  watches<inspect::Watch>().erase(number);
  watches<inspect::GradWatch>().erase(number);
  watches<inspect::NanWatch>().erase(number);
  watches<inspect::OperatorRecording>().erase(number);
  watches<inspect::MemoryWatch>().erase(number);
  return json::object();
}

// ---- the rest ------------------------------------------------------------------------------------------------------

json start(const Call& call) {
  use_python_call_sites(call.arguments.at("skipped"), call.arguments.at("folder"));
  return {{"protocol", kProtocolVersion}, {"lockstep", kVersion}, {"output_window", protocol::kOutputWindow}};
}

json agent_start(const Call& call) { return start_agent(call.arguments); }

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

// Around faulthandler.register (python/agent/stacks.h).
json agent_begin_borrowing(const Call&) {
  agent::begin_borrowing();
  return json::object();
}

json agent_end_borrowing(const Call& call) {
  agent::end_borrowing(call.arguments.at("file"));
  return json::object();
}

json attach_ranks(const Call& call) {
  const auto options = common_options<inspect::RanksOptions>(call.arguments);
  const auto failed = attach(call.arguments.at("group"), {.inspector = "attach"}, options);
  return report_json(failed ? *failed : inspect::Report());
}

json detach_ranks(const Call&) {
  detach();
  return json::object();
}

json count_step(const Call&) {
  inspect::count_step();
  return {{"findings", std::exchange(found_by_watches, json::array())}, {"stop", stops_at(inspect::counted_steps())}};
}

json steps(const Call&) { return {{"steps", inspect::counted_steps()}}; }

json give_tensors(const Call& call) {
  give(call);
  return json::object();
}

/// C++ cells have replaced the hooks of this package while they ran.
json take_hooks_back(const Call& call) {
  collect_findings();
  use_python_call_sites(call.arguments.at("skipped"), call.arguments.at("folder"));
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
  LOCKSTEP_OPERATOR("agent_folder", agent_folder);
  LOCKSTEP_OPERATOR("expect_invitations", expect_shells);
  LOCKSTEP_OPERATOR("set_stopped", set_stopped_at);
  LOCKSTEP_OPERATOR("report_stop", report_stop_of);
  LOCKSTEP_OPERATOR("take_invitation", take_shell);
  LOCKSTEP_OPERATOR("attach", attach_ranks);
  LOCKSTEP_OPERATOR("detach", detach_ranks);
  LOCKSTEP_OPERATOR("make_job_backend", make_job_backend);
  LOCKSTEP_OPERATOR("hook_group", hook_group);
  LOCKSTEP_OPERATOR("verify", verify);
  LOCKSTEP_OPERATOR("grads", grads);
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
  LOCKSTEP_OPERATOR("close", close);
  LOCKSTEP_OPERATOR("count_step", count_step);
  LOCKSTEP_OPERATOR("steps", steps);
  LOCKSTEP_OPERATOR("give", give_tensors);
  LOCKSTEP_OPERATOR("take_hooks_back", take_hooks_back);
  LOCKSTEP_OPERATOR("take_findings", take);
  LOCKSTEP_OPERATOR("draw", draw_findings);
}

}  // namespace lockstep::python
