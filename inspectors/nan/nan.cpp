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

std::string name_of(const TensorNames& names, const void* identity, const char* otherwise) {
  const TensorName* name = names.find(identity);
  return name ? name->name : otherwise;
}

/// "module head", "after module layer3.down"; empty where it has no name.
std::string module_text(const TensorNames& names, const void* parameter, bool after) {
  const TensorName* name = names.find(parameter);
  if (!name) return {};
  const std::string module = name->module();
  if (module.empty()) return {};
  return (after ? "after module " : "module ") + module;
}

std::string phase_of(const BadOrigin& origin) {
  if (origin.engine) return "backward";
  return !origin.grad && origin.reached == "the parameter" ? "optimizer" : "forward";
}

std::string reached_text(const BadOrigin& origin, const TensorNames& names) {
  if (origin.reached == "the gradient of" || origin.reached == "the parameter")
    return origin.reached + " " + name_of(names, origin.reached_identity, "(without a name)");
  return origin.reached;
}

/// What happened, without the ranks.
std::string story(const BadOrigin& origin, const TensorNames& names) {
  const char* what = origin.nan ? "NaN" : "Inf";
  std::string text;
  switch (origin.kind) {
    case Kind::kMade:
    case Kind::kDesign:
      text = fmt::format("{} {} {}", origin.op, origin.kind == Kind::kMade ? "made" : "was told to write", what);
      break;
    case Kind::kUnset:
      text = "memory that was never written was read: " + origin.op + " gave it";
      break;
    case Kind::kOutside: {
      const auto& input = origin.inputs.front();
      const TensorName* name = names.find(input.identity);
      text = fmt::format("{} came in with {}{}", what, name ? name->kind + " " + name->name + ", " : "", input.text);
      text += ", first read by " + origin.op;
      break;
    }
    case Kind::kCollective:
      text = "bad values came in through " + origin.op;
      break;
  }
  std::vector<std::string> details;
  if (!origin.within.empty()) details.push_back("in " + origin.within);
  details.push_back(phase_of(origin));
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
    if (!inputs.empty()) text += fmt::format(" out of {}", fmt::join(inputs, "; "));
    if (!origin.became_nan_in.empty()) text += "; " + origin.became_nan_in + " made NaN of it";
  }
  if (origin.reached != "the result") text += "; it reached " + reached_text(origin, names);
  return text;
}

Finding finding_of(const BadOrigin& origin, const TensorNames& names, const NanOptions& options) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "nan";
  finding.verdict = origin.nan ? "nan" : "inf";
  finding.kind = phase_of(origin);
  finding.step = options.step();
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
  if (const BadOrigin* origin = trace.culprit()) {
    facts.finding = finding_of(*origin, names, options);
    facts.made_here = origin->kind != Kind::kCollective;
  }
  return facts;
}

/// From a trace that has ended to the report of all ranks. Collective.
Report finish(const Running& run, const TensorNames& names, const NanOptions& options, const char* function) {
  Report report;
  Inspection inspection({.inspector = "nan", .object = options.name(), .function = function, .start = run.start},
                        options);
  if (!inspection.takes_part()) return report;
  const NanFacts mine = facts_of(*run.trace, names, options);
  if (const auto facts = inspection.exchange_facts(mine)) {
    inspection.add(nan_findings(inspection.about(), *facts));
  } else if (mine.finding) {  // where others are missing, what this rank found is of use all the same
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
  } catch (...) {  // thrown on: the state is to be as it was all the same
    run->operators.reset();
    saved.restore();
    throw;
  }
  saved.restore();
  return finish(*run, names, options, "inspect::replay");
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
  return finish(*run, names, options, "inspect::end_nan_trace");
}

void drop_nan_trace() { running.reset(); }

}  // namespace lockstep::inspect
