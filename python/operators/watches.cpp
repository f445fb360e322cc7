#include "python/operators/watches.h"

#include <map>
#include <memory>
#include <utility>

#include "lockstep/inspect.h"
#include "python/operators/inspect_with.h"
#include "python/operators/subjects.h"

namespace lockstep::python {

using nlohmann::json;

namespace {

/// Holds watches by the number that Python has for them. The program's own thread uses it.
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

}  // namespace

json watch(const Call& call) {
  auto options = verify_options(call);
  const auto what = [&] {
    const auto subject = subject_of(call, call.arguments.at("subject"));
    // Python describes the object anew at each check: it may have changed.
    const auto now = [function = python_function(call.arguments.at("subject_function"))] {
      call_python(function);
      const Call given = take_given();
      return subject_of(given, given.arguments);
    };
    // The watch itself looks at this: the parts of this rank among the rest.
    const auto own = [](inspect::ShardedSubject sharded) {
      for (inspect::Part& each : sharded.parts) sharded.common.items.push_back(std::move(each.item));
      return std::move(sharded.common);
    };
    const auto first_then_now = [mine = own(subject), first = true, now, own]() mutable {
      return std::exchange(first, false) ? std::exchange(mine, {}) : own(now());
    };
    const auto verify = [now](const inspect::VerifyOptions& each) { return inspect::verify_sharded(now(), each); };
    const auto found = [number = next_watch](const inspect::Report& report) {
      json result = report_json(report);
      for (json& each : result.at("findings"))
        found_by_watches.push_back({{"watch", number}, {"finding", std::move(each)}});
    };
    return keep<inspect::Watch>(first_then_now, call.arguments.at("every").get<int64_t>(), options, verify, found,
                                call.arguments.at("steps_others").get<bool>());
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

json close_watch(const Call& call) {
  const int64_t number = call.arguments.at("watch");
  watches<inspect::Watch>().erase(number);
  watches<inspect::GradWatch>().erase(number);
  watches<inspect::NanWatch>().erase(number);
  watches<inspect::OperatorRecording>().erase(number);
  watches<inspect::MemoryWatch>().erase(number);
  return json::object();
}

json take_found_by_watches() { return std::exchange(found_by_watches, json::array()); }

}  // namespace lockstep::python
