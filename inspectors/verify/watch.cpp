#include "inspectors/verify/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/rank_context.h"
#include "collectives/watch/spelling.h"
#include "ddp/inspection.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/trace/parameter_trace.h"
#include "inspectors/trace/step_counter.h"
#include "inspectors/trace/tensor_values.h"
#include "inspectors/verify/queued_verify.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {

namespace {
using Clock = std::chrono::steady_clock;
constexpr size_t kObservedParameters = 4;
/// So many steps change each parameter that is trained: a learning rate may begin with 0.
constexpr int64_t kTrainingSteps = 10;
/// When a rank does not come to so many checks in a row, nothing is compared any more, since each costs the others the
/// deadline. One is allowed: a rank may have been busy, with a checkpoint for example.
constexpr int kMostMissed = 2;

std::vector<Item> trained_parameters(const Subject& subject) {
  std::vector<Item> result;
  for (const Item& each : subject.items)
    if (each.kind == FindingKind::parameter && each.trainable && each.tensor.defined() && each.tensor.numel() > 0 &&
        each.tensor.layout() == at::kStrided && each.tensor.has_storage() && !each.tensor.is_meta())
      result.push_back(each);
  return result;
}

std::map<std::string, Hash> hashes_of(const std::vector<Item>& items) {
  std::vector<at::Tensor> tensors;
  for (const Item& each : items) tensors.push_back(each.tensor);
  const std::vector<Fingerprint> marks = fingerprint(tensors);
  std::map<std::string, Hash> hashes;
  for (size_t i = 0; i < items.size(); ++i) hashes[items[i].name] = marks[i].hash;
  return hashes;
}
}  // namespace

struct Watch::State : StepObserver {
  std::shared_ptr<StepCounter> steps = StepCounter::of_this_thread();
  std::function<Subject()> subject;
  std::function<Report(const VerifyOptions&)> verify;  // empty: verify_subject
  std::function<void(const Report&)> found;
  int64_t every = 1;
  VerifyOptions options;
  Clock::time_point begun = Clock::now();

  // These count steps.
  std::optional<ddp::DistributedModule> wrapper;
  std::shared_ptr<const void> listener;  // of the wrapper
  bool counted_by_hand = false;  // inspect::step was called, so changes of parameters do not count
  std::vector<at::Tensor> stepped;  // parameters whose changes count
  uint64_t trace = 0;

  int64_t step = 0;  // the last one
  int64_t since = 0;  // steps since the watch began, or since the last regroup
  int64_t generation = 0;
  std::optional<int64_t> equal_at;  // the last step at which the replicas were equal; none: not compared before
  bool reported = false;
  int missed = 0;  // checks in a row at which the ranks did not meet
  std::optional<int64_t> missed_at;  // the step of the last one, of this watch or of another one of the same ranks
  std::map<std::string, Hash> at_start;  // of the parameters, until they are compared with those after kTrainingSteps
  bool steps_others = false;
  std::optional<QueuedVerify> queued;  // the last check, until the next step is over
  int64_t queued_step = 0;
  WatchCost cost;

  uint64_t trace_now() const {
    uint64_t sum = 0;
    for (const at::Tensor& each : stepped) sum += trace_of(each);
    return sum;
  }

  /// Ranks that failed at different points of a cell have counted different numbers of steps, so a regroup starts
  /// again.
  void follow_regroup() {
    const auto context = dist::current_context();
    const int64_t now = context ? context->generation() : 0;
    if (now == generation) return;
    generation = now;
    since = 0;
    missed = 0;
    missed_at.reset();
    trace = trace_now();
    queued.reset();
  }

  void step_is_over(int64_t number) {
    if (steps->paused()) return;  // an inspector runs the step, and undoes it
    follow_regroup();
    if (queued) finish_queued();
    step = number;
    ++cost.steps;
    if (++since % every == 0) check();
  }

  void step_counted(int64_t number) override {
    counted_by_hand = true;
    step_is_over(number);
  }

  void collective_begins() override {
    if (counted_by_hand || steps->paused()) return;
    follow_regroup();
    const uint64_t now = trace_now();
    if (now == trace) return;
    trace = now;
    step_is_over(step + 1);
  }

  /// On a device the fingerprints are queued here, before the optimizer's next update is, and compared when the next
  /// step is over.
  void check() {
    if (missed == kMostMissed || missed_at == step) return;
    ++cost.checks;
    if (since >= kTrainingSteps && !at_start.empty()) look_for_unchanged();
    const VerifyOptions now = VerifyOptions(options).publish(false).step(step).waits_when_late(false);
    if (verify) return judge(verify(now), step);
    Subject current = subject();
    if (QueuedVerify::possible(current, now)) {
      queued.emplace(std::move(current), now);
      queued_step = step;
      return;
    }
    judge(verify_subject(current, now), step);
  }

  void finish_queued() {
    QueuedVerify earlier = *std::exchange(queued, std::nullopt);
    judge(earlier.finish(subject), queued_step);
  }

  /// Each rank looks at its own parameters. Local.
  void look_for_unchanged() {
    const std::map<std::string, Hash> before = std::exchange(at_start, {});
    const Subject now = subject();
    const std::vector<Item> parameters = trained_parameters(now);
    const std::map<std::string, Hash> hashes = hashes_of(parameters);
    const About about{.inspector = "verify",
                      .object = now.name.empty() ? now.type : now.name,
                      .step = step,
                      .ranks = RankSet{own_rank()},
                      .names = {}};
    Finding finding = about.finding(Severity::note, Verdict::stale, FindingKind::parameter);
    for (const Item& each : parameters)
      if (const auto old = before.find(each.name); old != before.end() && old->second == hashes.at(each.name))
        finding.tensors.push_back(finding_tensor(each.name, each.tensor));
    if (finding.tensors.empty()) return;
    const bool none_changed = finding.tensors.size() == parameters.size();
    finding.message =
        fmt::format("{} steps have not changed {} on rank {}: ", since,
                    none_changed ? std::string("any parameter")
                                 : fmt::format("{} of {}", finding.tensors.size(),
                                               counted(static_cast<int64_t>(parameters.size()), "parameter")),
                    own_rank());
    if (none_changed && steps_others) {
      finding.severity = Severity::fault;
      finding.message +=
          "the optimizer has none of them. Was it built before fully_shard, or before the parameters were replaced? "
          "Build it after that";
    } else {
      finding.message += "without a gradient, in no optimizer, or with a learning rate of 0?";
    }
    Report report;
    report.took_part = options.ranks().value_or(live_ranks());
    report.findings.push_back(std::move(finding));
    publish_from_reporting_rank(report);
    if (!report.ok() && found) found(report);
  }

  /// Concerns all watches of the same ranks: they make their checks in the same steps, and lose the same ranks.
  void note_meeting(bool met, int64_t of_step) {
    const auto note = [&](State& each) {
      each.missed = met ? 0 : each.missed + 1;
      if (!met) each.missed_at = of_step;
    };
    note(*this);
    for (const auto& each : steps->observers())
      if (auto* other = dynamic_cast<State*>(each.get());
          other && other != this && other->options.ranks() == options.ranks())
        note(*other);
  }

  void judge(Report report, int64_t of_step) {
    cost.seconds += report.seconds;
    const auto failed_call = [](const Finding& each) { return is_fault(each) && each.kind == FindingKind::call; };
    note_meeting(std::ranges::none_of(report.findings, failed_call), of_step);
    if (report.ok()) {
      equal_at = of_step;
      reported = false;
      return;
    }
    const bool ends = missed == kMostMissed;
    if (reported && !ends) return;
    reported = true;
    for (Finding& each : report.findings) {
      if (!is_fault(each)) continue;
      each.step = of_step;
      if (each.kind == FindingKind::call)
        each.message +=
            fmt::format("; this is the watch, at step {}: does every rank run each step?{}", of_step,
                        ends ? " Nothing is compared from here on, since the checks of the ranks do not meet" : "");
      else
        each.message += equal_at ? fmt::format("; equal at step {}, not at step {}", *equal_at, of_step)
                                 : fmt::format("; not equal at step {}, the first that was compared", of_step);
    }
    publish_from_reporting_rank(report, is_not_ok);
    if (found) found(report);
  }
};

Watch::Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options,
             std::function<Report(const VerifyOptions&)> verify, std::function<void(const Report&)> found,
             bool steps_others)
    : Watch(std::move(subject), every, std::move(options)) {
  state_->verify = std::move(verify);
  state_->found = std::move(found);
  state_->steps_others = steps_others;
}

Watch::Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options)
    : state_(std::make_shared<State>()) {
  if (every < 1)
    throw dist::ArgumentError(fmt::format("{}: every {} steps? It takes 1 or more", inspect_name("watch"), every));
  const Subject now = subject();
  state_->at_start = hashes_of(trained_parameters(now));
  state_->subject = std::move(subject);
  state_->every = every;
  state_->options = std::move(options);
  const auto context = dist::current_context();
  if (context) state_->generation = context->generation();
  // A wrapper without a Reducer (of one rank) has no synchronised backward.
  if (now.wrapper && now.wrapper->reducer()) {
    state_->wrapper = now.wrapper;
    state_->step = now.wrapper->steps();
    if (!state_->options.ranks() && context) state_->options.ranks(ranks_of(*now.wrapper, context->live_ranks()));
    state_->listener = ddp::Inspection(*now.wrapper).on_step([weak = std::weak_ptr(state_)] {
      if (const auto state = weak.lock()) state->step_is_over(state->wrapper->steps());
    });
  } else {
    state_->step = state_->steps->count();
    // Only a few parameters are kept, since they are read at the begin of each collective.
    std::vector<at::Tensor> trained;
    for (const at::Tensor& each : now.stepped)
      if (each.requires_grad()) trained.push_back(each);
    if (trained.empty()) trained = now.stepped;
    const size_t count = std::min(kObservedParameters, trained.size());
    for (size_t i = 0; i < count; ++i) state_->stepped.push_back(trained[i * trained.size() / count]);
    state_->trace = state_->trace_now();
    state_->steps->add(state_);
  }
}

Watch::Watch(Watch&& other) noexcept = default;

Watch::~Watch() {
  if (state_ && !state_->wrapper) state_->steps->remove(*state_);
}

WatchCost Watch::cost() const {
  WatchCost cost = state_->cost;
  cost.of_seconds = std::chrono::duration<double>(Clock::now() - state_->begun).count();
  return cost;
}

}  // namespace lockstep::inspect
