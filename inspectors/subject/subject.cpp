#include "inspectors/subject/subject.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "ddp/inspection.h"
#include "ddp/options.h"
#include "inspectors/subject/learning_rate.h"

namespace lockstep::inspect {
namespace {

using detail::joined;

void set_type(Subject& subject, const std::string& prefix, const char* type) {
  if (prefix.empty()) subject.type = type;
}

/// Returns JSON, but with distinct texts for NaN, Inf and both zeros, and for strings that are no UTF-8.
std::string text_of(const nlohmann::json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_array() || value.is_object()) {
    std::string text;
    for (const auto& [key, each] : value.items())
      text += (text.empty() ? "" : ", ") + (value.is_object() ? text_of(key) + ": " : "") + text_of(each);
    return value.is_array() ? "[" + text + "]" : "{" + text + "}";
  }
  try {
    return value.dump();
  } catch (const nlohmann::json::type_error&) {  // not UTF-8
    std::string text;
    for (const char each : value.get_ref<const std::string&>())
      text += fmt::format("\\x{:02x}", static_cast<uint8_t>(each));
    return "\"" + text + "\"";
  }
}

void add_value(Subject& subject, std::string name, FindingKind kind, const nlohmann::json& value) {
  subject.items.push_back({.name = std::move(name), .kind = kind, .tensor = {}, .value = text_of(value)});
}

void add_tensor(Subject& subject, std::string name, FindingKind kind, const at::Tensor& tensor) {
  if (tensor.defined())
    subject.items.push_back({.name = std::move(name),
                             .kind = kind,
                             .tensor = tensor.detach(),
                             .value = {},
                             .trainable = tensor.requires_grad()});
  else
    add_value(subject, std::move(name), kind, "undefined");
}

// ---- optimizers of LibTorch: state of each parameter, options of each group ----------------------------------------

using namespace torch::optim;

class StateWriter {
 public:
  StateWriter(Subject& subject, std::string prefix, FindingKind kind)
      : subject_(subject), prefix_(std::move(prefix)), kind_(kind) {}
  void operator()(const char* name, const at::Tensor& tensor) const {
    if (tensor.defined()) add_tensor(subject_, prefix_ + name, kind_, tensor);
  }
  void operator()(const char* name, const nlohmann::json& value) const {
    add_value(subject_, prefix_ + name, kind_, value);
  }

 private:
  Subject& subject_;
  std::string prefix_;
  FindingKind kind_;
};

nlohmann::json pair(const std::tuple<double, double>& values) { return {std::get<0>(values), std::get<1>(values)}; }

template <typename State>
bool write_adam(const OptimizerParamState& state, const StateWriter& write) {
  const auto* adam = dynamic_cast<const State*>(&state);
  if (!adam) return false;
  write("step", nlohmann::json(adam->step()));
  write("exp_avg", adam->exp_avg());
  write("exp_avg_sq", adam->exp_avg_sq());
  write("max_exp_avg_sq", adam->max_exp_avg_sq());
  return true;
}

bool write_state(const OptimizerParamState& state, const StateWriter& write) {
  if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state)) {
    write("momentum_buffer", sgd->momentum_buffer());
    return true;
  }
  if (write_adam<AdamParamState>(state, write) || write_adam<AdamWParamState>(state, write)) return true;
  if (const auto* rms = dynamic_cast<const RMSpropParamState*>(&state)) {
    write("step", nlohmann::json(rms->step()));
    write("square_avg", rms->square_avg());
    write("momentum_buffer", rms->momentum_buffer());
    write("grad_avg", rms->grad_avg());
    return true;
  }
  if (const auto* ada = dynamic_cast<const AdagradParamState*>(&state)) {
    write("step", nlohmann::json(ada->step()));
    write("sum", ada->sum());
    return true;
  }
  if (const auto* lbfgs = dynamic_cast<const LBFGSParamState*>(&state)) {
    write("func_evals", nlohmann::json(lbfgs->func_evals()));
    write("n_iter", nlohmann::json(lbfgs->n_iter()));
    write("t", nlohmann::json(lbfgs->t()));
    write("d", lbfgs->d());
    write("H_diag", lbfgs->H_diag());
    write("prev_flat_grad", lbfgs->prev_flat_grad());
    write("prev_loss", lbfgs->prev_loss());
    const auto list = [&](const char* name, const std::deque<at::Tensor>& tensors) {
      for (size_t i = 0; i < tensors.size(); ++i) write(fmt::format("{}[{}]", name, i).c_str(), tensors[i]);
    };
    list("old_dirs", lbfgs->old_dirs());
    list("old_stps", lbfgs->old_stps());
    list("ro", lbfgs->ro());
    if (lbfgs->al()) list("al", {lbfgs->al()->begin(), lbfgs->al()->end()});
    return true;
  }
  return false;
}

template <typename Options>
bool write_adam_options(const OptimizerOptions& options, const StateWriter& write) {
  const auto* adam = dynamic_cast<const Options*>(&options);
  if (!adam) return false;
  write("betas", pair(adam->betas()));
  write("eps", nlohmann::json(adam->eps()));
  write("weight_decay", nlohmann::json(adam->weight_decay()));
  write("amsgrad", nlohmann::json(adam->amsgrad()));
  return true;
}

bool write_options(const OptimizerOptions& options, const StateWriter& write) {
  if (const auto rate = learning_rate(options)) write("lr", nlohmann::json(*rate));
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) {
    write("momentum", nlohmann::json(sgd->momentum()));
    write("dampening", nlohmann::json(sgd->dampening()));
    write("weight_decay", nlohmann::json(sgd->weight_decay()));
    write("nesterov", nlohmann::json(sgd->nesterov()));
    return true;
  }
  if (write_adam_options<AdamOptions>(options, write) || write_adam_options<AdamWOptions>(options, write)) return true;
  if (const auto* rms = dynamic_cast<const RMSpropOptions*>(&options)) {
    write("alpha", nlohmann::json(rms->alpha()));
    write("eps", nlohmann::json(rms->eps()));
    write("weight_decay", nlohmann::json(rms->weight_decay()));
    write("momentum", nlohmann::json(rms->momentum()));
    write("centered", nlohmann::json(rms->centered()));
    return true;
  }
  if (const auto* ada = dynamic_cast<const AdagradOptions*>(&options)) {
    write("lr_decay", nlohmann::json(ada->lr_decay()));
    write("weight_decay", nlohmann::json(ada->weight_decay()));
    write("initial_accumulator_value", nlohmann::json(ada->initial_accumulator_value()));
    write("eps", nlohmann::json(ada->eps()));
    return true;
  }
  if (const auto* lbfgs = dynamic_cast<const LBFGSOptions*>(&options)) {
    write("max_iter", nlohmann::json(lbfgs->max_iter()));
    write("max_eval", lbfgs->max_eval() ? nlohmann::json(*lbfgs->max_eval()) : nlohmann::json());
    write("line_search_fn", lbfgs->line_search_fn() ? nlohmann::json(*lbfgs->line_search_fn()) : nlohmann::json());
    write("history_size", nlohmann::json(lbfgs->history_size()));
    write("tolerance_grad", nlohmann::json(lbfgs->tolerance_grad()));
    write("tolerance_change", nlohmann::json(lbfgs->tolerance_change()));
    return true;
  }
  return false;
}

}  // namespace

namespace {

/// Returns "train(), norm eval()": the module's mode, and those of submodules that differ from their parent's.
std::string modes_of(const torch::nn::Module& module, const std::string& name = "") {
  const auto mode = [](const torch::nn::Module& each) { return each.is_training() ? "train()" : "eval()"; };
  std::string text = name.empty() ? mode(module) : "";
  for (const auto& child : module.named_children()) {
    const std::string path = joined(name, child.key());
    if (child.value()->is_training() != module.is_training())
      text += fmt::format(", {} {}", path, mode(*child.value()));
    text += modes_of(*child.value(), path);
  }
  return text;
}

template <typename... Types>
bool drops_out(const torch::nn::Module& module) {
  const auto is = [&](const auto* each) { return each && each->options.p() > 0; };
  return module.is_training() && (is(dynamic_cast<const Types*>(&module)) || ...);
}

bool has_dropout(const torch::nn::Module& module) {
  return drops_out<torch::nn::DropoutImpl, torch::nn::Dropout2dImpl, torch::nn::Dropout3dImpl,
                   torch::nn::AlphaDropoutImpl, torch::nn::FeatureAlphaDropoutImpl>(module) ||
         std::ranges::any_of(module.children(), [](const auto& each) { return has_dropout(*each); });
}

void describe_module(Subject& subject, const std::string& prefix, const torch::nn::Module& module) {
  set_type(subject, prefix, "module");
  for (const auto& each : module.named_parameters()) {
    add_tensor(subject, joined(prefix, each.key()), FindingKind::parameter, each.value());
    subject.stepped.push_back(each.value());
  }
  for (const auto& each : module.named_buffers())
    add_tensor(subject, joined(prefix, each.key()), FindingKind::buffer, each.value());
  subject.items.push_back(
      {.name = joined(prefix, "training"), .kind = FindingKind::mode, .tensor = {}, .value = modes_of(module)});
  if (has_dropout(module))
    subject.dropout = generator_state_for(subject.stepped.empty() ? at::Tensor() : subject.stepped.front());
}

}  // namespace

Hash generator_state_for(const at::Tensor& parameter) {
  at::Generator generator = parameter.defined() && !parameter.is_cpu()
                                ? at::globalContext().defaultGenerator(parameter.device())
                                : at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return fingerprint(generator.get_state()).hash;
}

void describe(Subject& subject, const std::string& prefix, const torch::nn::Module& module) {
  if (const auto wrapper = ddp::Inspection::wrapper_of(module))
    describe(subject, prefix, *wrapper);
  else
    describe_module(subject, prefix, module);
}

void describe(Subject& subject, const std::string& prefix, const ddp::DistributedModule& wrapper) {
  describe_module(subject, prefix, *wrapper.module());
  subject.buffers_are_local = !wrapper.options().broadcast_buffers();
  subject.buffers_are_written = ddp::Inspection(wrapper).buffers_may_differ();
  subject.step = wrapper.steps();
  subject.wrapper = wrapper;
}

RankSet ranks_of(const ddp::DistributedModule& wrapper, const RankSet& alive) {
  try {
    return RankSet(dist::session_ranks(wrapper.process_group())) & alive;
  } catch (const dist::ArgumentError&) {  // a group that dist did not make may have all ranks
    return alive;
  }
}

void describe(Subject& subject, const std::string& prefix, const torch::optim::Optimizer& optimizer) {
  set_type(subject, prefix, "optimizer");
  const auto& groups = optimizer.param_groups();
  const auto& state = optimizer.state();
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string group = groups.size() == 1 ? "" : fmt::format("{}.", g);
    const auto& parameters = groups[g].params();
    subject.stepped.insert(subject.stepped.end(), parameters.begin(), parameters.end());
    if (!groups[g].has_options() ||
        !write_options(groups[g].options(), StateWriter(subject, joined(prefix, group), FindingKind::hyperparameter)))
      add_value(subject, joined(prefix, group + "options"), FindingKind::unsupported, "compared by the learning rate");
    add_value(subject, joined(prefix, group + "parameters"), FindingKind::hyperparameter, parameters.size());
    for (size_t p = 0; p < parameters.size(); ++p) {
      const auto found = state.find(parameters[p].unsafeGetTensorImpl());
      if (found == state.end()) continue;
      const std::string parameter = joined(prefix, fmt::format("{}{}.", group, p));
      if (!write_state(*found->second, StateWriter(subject, parameter, FindingKind::state)))
        add_value(subject, parameter + "state", FindingKind::unsupported, "not compared");
    }
  }
}

void describe(Subject& subject, const std::string& prefix, const at::Tensor& tensor) {
  set_type(subject, prefix, "tensor");
  add_tensor(subject, prefix, FindingKind::tensor, tensor);
  if (tensor.defined()) subject.stepped.push_back(tensor);
}

void describe(Subject& subject, const std::string& prefix, const at::Generator& generator) {
  set_type(subject, prefix, "rng");
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  add_tensor(subject, prefix.empty() ? "state" : prefix, FindingKind::rng, handle.get_state());
  subject.items.back().value = fmt::format("{}", handle.current_seed());
}

void describe(Subject& subject, const std::string& prefix, Rng) {
  set_type(subject, prefix, "rng");
  describe(subject, joined(prefix, "cpu"), at::detail::getDefaultCPUGenerator());
  if (!torch::cuda::is_available()) return;
  const auto device = at::globalContext().defaultGenerator(c10::Device(c10::kCUDA));
  describe(subject, joined(prefix, "cuda"), device);
}

void describe_value(Subject& subject, const std::string& prefix, const nlohmann::json& value) {
  set_type(subject, prefix, "value");
  subject.items.push_back({.name = prefix, .kind = FindingKind::value, .tensor = {}, .value = text_of(value)});
}

}  // namespace lockstep::inspect
