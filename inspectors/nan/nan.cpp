#include "inspectors/nan/nan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "inspectors/exchange/inspection.h"
#include "inspectors/exchange/shown.h"
#include "inspectors/nan/findings.h"
#include "inspectors/nan/trace.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = BadOrigin::Kind;
using Reached = BadOrigin::Reached;

struct Running {
  std::shared_ptr<NanTrace> trace;
  std::unique_ptr<OpTrace> operators;
  Clock::time_point start;
};

thread_local std::unique_ptr<Running> running;

std::unique_ptr<Running> start_trace() {
  auto result = std::make_unique<Running>();
  result->trace = std::make_shared<NanTrace>();
  result->operators = std::make_unique<OpTrace>(result->trace, OpTraceOptions{});
  result->start = Clock::now();
  return result;
}

std::string parameter_text(const TensorNames& names, const void* identity) {
  const TensorName* name = names.find(identity);
  return name ? name->name : "(without a name)";
}

/// Returns "module head", "after module layer3.down"; empty without a name.
std::string module_text(const TensorNames& names, const void* parameter, bool after) {
  const TensorName* name = names.find(parameter);
  if (!name) return {};
  const std::string module = name->module();
  if (module.empty()) return {};
  return (after ? "after module " : "module ") + module;
}

FindingKind phase_of(const BadOrigin& origin) {
  if (origin.engine) return FindingKind::backward;
  return !origin.grad && origin.reached == Reached::kParameter ? FindingKind::optimizer : FindingKind::forward;
}

/// Returns "; it reached the loss"; empty for the result of the step.
std::string reached_text(const BadOrigin& origin, const TensorNames& names) {
  switch (origin.reached) {
    case Reached::kLoss:
      return "; it reached the loss";
    case Reached::kGradient:
      return "; it reached the gradient of " + parameter_text(names, origin.reached_identity);
    case Reached::kParameter:
      return "; it reached the parameter " + parameter_text(names, origin.reached_identity);
    case Reached::kNumber:
      return "; it reached a number that the program read";
    case Reached::kShown:
      return "; it reached a value that was shown";
    case Reached::kHeld:
      return "; it reached a tensor that the program kept";
    case Reached::kNothing:
    case Reached::kResult:
      break;
  }
  return "";
}

/// Returns the message, without the ranks.
std::string story(const BadOrigin& origin, const TensorNames& names) {
  const char* what = origin.nan ? "NaN" : "Inf";
  std::string text;
  switch (origin.kind) {
    case Kind::kMade:
    case Kind::kDesign:
      text = fmt::format("{} {} {}", origin.op, origin.kind == Kind::kMade ? "made" : "was called to write", what);
      break;
    case Kind::kUnset:
      text = "memory that was never written was read, allocated by " + origin.op;
      break;
    case Kind::kOutside: {
      const auto& input = origin.inputs.front();
      const TensorName* name = names.find(input.identity);
      text = fmt::format("{} came in with {}{}", what, name ? name->kind + " " + name->name + ", " : "", input.text);
      text += ", first read by " + origin.op;
      break;
    }
    case Kind::kCollective:
      text = "NaN or Inf came in through " + origin.op;
      break;
  }
  std::vector<std::string> details;
  if (!origin.within.empty()) details.push_back("in " + origin.within);
  details.emplace_back(to_string(phase_of(origin)));
  if (!origin.node.empty() && !origin.forward.name.empty()) {
    const size_t start = origin.forward.name.find_first_not_of('_');
    details.push_back("in the backward of " + origin.forward.name.substr(start == std::string::npos ? 0 : start));
  } else if (!origin.node.empty()) {
    details.push_back("in " + origin.node);
  }
  if (const auto module = module_text(names, origin.parameter, origin.after_parameter); !module.empty())
    details.push_back(module);
  text += fmt::format(" ({})", fmt::join(details, ", "));
  if (origin.kind == Kind::kMade || origin.kind == Kind::kDesign) {
    std::vector<std::string> inputs;
    for (const auto& input : origin.inputs) {
      const TensorName* name = names.find(input.identity);
      inputs.push_back(fmt::format("{} {}", name ? name->name : input.argument, input.text));
    }
    if (!inputs.empty()) text += fmt::format(" from {}", fmt::join(inputs, "; "));
    if (!origin.became_nan_in.empty()) text += "; " + origin.became_nan_in + " made NaN of it";
  }
  return text + reached_text(origin, names);
}

Finding finding_of(const BadOrigin& origin, const TensorNames& names, const NanOptions& options) {
  const About about{.inspector = "nan", .object = {}, .step = options.step(), .ranks = {}};
  Finding finding = about.finding(Severity::fault, origin.nan ? Verdict::nan : Verdict::inf, phase_of(origin));
  if (const TensorName* name = names.find(origin.parameter); name && !name->object.empty())
    finding.object = name->object;
  FindingTensor output = origin.output;
  if (origin.kind == Kind::kOutside) {
    const TensorName* name = names.find(origin.inputs.front().identity);
    if (name) output.name = name->name;
  } else if (!output.name.empty()) {
    output.name = origin.op + " " + output.name;
  }
  if (!output.name.empty()) finding.tensors.push_back(output);
  finding.op =
      FindingOp{.name = origin.op, .seq = origin.number, .shape = output.shape, .dtype = output.dtype, .group = ""};
  if (auto where = describe_call_site(origin.site); !where.empty()) finding.where = std::move(where);
  finding.message = story(origin, names);
  return finding;
}

NanFacts facts_of(const NanTrace& trace, const TensorNames& names, const NanOptions& options) {
  NanFacts facts{.operators = trace.operators(), .harmless = trace.harmless()};
  if (const BadOrigin* origin = trace.first_cause()) {
    facts.finding = finding_of(*origin, names, options);
    facts.made_here = origin->kind != Kind::kCollective && !origin->of_received;
  }
  return facts;
}

/// Makes the report of all ranks about a trace that has ended. Collective.
Report finish(const Running& run, const TensorNames& names, const NanOptions& options, const char* function) {
  Report report;
  Inspection inspection({.inspector = "nan", .object = options.name(), .function = function, .start = run.start},
                        options);
  if (!inspection.takes_part()) return report;
  const NanFacts mine = facts_of(*run.trace, names, options);
  if (const auto facts = inspection.exchange_facts(mine)) {
    inspection.add(nan_findings(inspection.about(), *facts));
  } else if (mine.finding) {  // the finding of this rank is useful even if others are missing
    About own = inspection.about();
    own.ranks = RankSet{inspection.rank()};
    inspection.add(nan_findings(own, {mine}));
  }
  report.tensors = run.trace->operators();
  inspection.conclude(report);
  return report;
}

}  // namespace

Report detail::replay_traced(const std::function<std::vector<at::Tensor>()>& step, const SavedState& saved,
                             const TensorNames& names, const NanOptions& options) {
  const UncountedSteps uncounted;
  std::unique_ptr<Running> run = start_trace();
  try {
    std::vector<at::Tensor> results = step();
    run->operators.reset();
    run->trace->end(results);
  } catch (...) {  // passed on, once the state is restored
    run->operators.reset();
    saved.restore();
    throw;
  }
  saved.restore();
  return finish(*run, names, options, "replay");
}

void begin_nan_trace() {
  running.reset();
  running = start_trace();
}

void note_shown(const at::Tensor& tensor) {
  if (running) running->trace->shown(tensor);
}

Report end_nan_trace(const TensorNames& names, const NanOptions& options) {
  const std::unique_ptr<Running> run = std::move(running);
  if (!run) return {};
  run->operators.reset();
  run->trace->end({});
  return finish(*run, names, options, "end_nan_trace");
}

void drop_nan_trace() { running.reset(); }

}  // namespace lockstep::inspect
