#include "ddp/distributed_module.h"

#include <ostream>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "ddp/join.h"
#include "ddp/low_precision.h"
#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"
#include "ddp/wrappers.h"

namespace lockstep::ddp {

using detail::State;

NoSync::NoSync(std::shared_ptr<State> state) : state_(std::move(state)), before_(state_->require_backward_grad_sync) {
  state_->require_backward_grad_sync = false;
}
NoSync::~NoSync() { state_->require_backward_grad_sync = before_; }

DistributedModule::DistributedModule(std::shared_ptr<torch::nn::Module> module, Options options)
    : state_(std::make_shared<State>(std::move(module), std::move(options))) {
  state_->construct();
}

const std::shared_ptr<torch::nn::Module>& DistributedModule::module() const { return state_->module; }
namespace {
// LibTorch lists a tensor under each of its names.
torch::OrderedDict<std::string, torch::Tensor> each_once(const torch::OrderedDict<std::string, torch::Tensor>& all) {
  torch::OrderedDict<std::string, torch::Tensor> once(all.key_description());
  std::unordered_set<const void*> seen;
  for (const auto& item : all) {
    if (seen.insert(item->unsafeGetTensorImpl()).second) once.insert(item.key(), item.value());
  }
  return once;
}
}  // namespace

std::vector<torch::Tensor> DistributedModule::parameters() const { return named_parameters().values(); }
torch::OrderedDict<std::string, torch::Tensor> DistributedModule::named_parameters() const {
  return each_once(state_->module->named_parameters());
}
torch::OrderedDict<std::string, torch::Tensor> DistributedModule::named_buffers() const {
  return each_once(state_->module->named_buffers());
}
void DistributedModule::train(bool on) const { state_->module->train(on); }
bool DistributedModule::is_training() const { return state_->module->is_training(); }
void DistributedModule::zero_grad(bool set_to_none) const { state_->module->zero_grad(set_to_none); }

NoSync DistributedModule::no_sync() const { return NoSync(state_); }
bool DistributedModule::require_backward_grad_sync() const { return state_->require_backward_grad_sync; }
void DistributedModule::require_backward_grad_sync(bool on) const { state_->require_backward_grad_sync = on; }

void DistributedModule::join(const std::function<void()>& training_loop, const JoinOptions& options) const {
  ddp::join({*this}, training_loop, options);
}

namespace {
void check_no_hook(const State& state) {
  if (state.comm_hook || state.builtin_hook) {
    throw std::logic_error("a communication hook can be registered once; this module has '" +
                           (state.comm_hook ? state.comm_hook->name : std::string("built-in")) + "'");
  }
  if (state.parameters.empty()) throw std::logic_error("every parameter is delayed, so no bucket would reach a hook");
}
}  // namespace

void DistributedModule::register_comm_hook(CommHook hook) const {
  check_no_hook(*state_);
  if (!hook.run) throw std::invalid_argument("a communication hook must be callable; this one is empty");
  state_->comm_hook = std::move(hook);
  state_->reducer ? state_->register_hook_with_reducer() : state_->make_reducer();
}

void DistributedModule::register_builtin_comm_hook(c10d::BuiltinCommHookType hook) const {
  check_no_hook(*state_);
  state_->builtin_hook = hook;
  state_->reducer ? state_->register_hook_with_reducer() : state_->make_reducer();
}

void DistributedModule::register_buffer_comm_hook(BufferCommHook hook, BufferCommHookLocation location) const {
  if (!hook) throw std::invalid_argument("a hook for buffers must be callable; this one is empty");
  state_->buffer_hook = std::move(hook);
  state_->buffer_hook_location = location;
}

void DistributedModule::set_static_graph() const {
  if (state_->static_graph) return;
  if (state_->steps > 0) throw std::logic_error("set_static_graph() must come before the first forward");
  state_->static_graph = true;
  if (state_->reducer) {
    state_->reducer->set_static_graph();
    state_->logger->set_static_graph();
  }
}

void DistributedModule::set_ddp_sink_clone(bool clone) const { state_->sink_clone = clone; }

namespace {
// One rank reduces nothing and has no Reducer; one is made for the time of the question.
template <class Question>
auto ask_reducer(State& state, const Question& question) {
  const bool temporary = !state.reducer;
  if (temporary) state.make_reducer();
  auto answer = question();
  if (temporary) {
    state.logger.reset();
    state.reducer.reset();
  }
  return answer;
}
}  // namespace

at::DDPLoggingData DistributedModule::get_ddp_logging_data() const {
  if (state_->parameters.empty()) return {};
  auto data = ask_reducer(*state_, [&] { return state_->logger->get_ddp_logging_data(); });
  data.strs_map["backend_name"] = state_->group->getBackendName();
  return data;
}

void DistributedModule::set_ddp_runtime_logging_sample_rate(int sample_rate) const {
  if (sample_rate < 1) throw std::invalid_argument("the sample rate of logging must be 1 or greater");
  if (state_->reducer) state_->reducer->set_ddp_runtime_logging_sample_rate(sample_rate);
}

std::vector<Bucket> DistributedModule::buckets() const {
  if (state_->parameters.empty()) return {};
  std::unordered_map<const void*, size_t> places;
  for (size_t i = 0; i < state_->parameters.size(); ++i) places[state_->parameters[i].unsafeGetTensorImpl()] = i;
  return ask_reducer(*state_, [&] {
    std::vector<Bucket> buckets;
    for (const auto& from : state_->reducer->get_grad_buckets(/*return_zero_tensors=*/false)) {
      Bucket bucket{from.getIndex(), {}, {}, 0};
      for (const auto& parameter : from.getParameters()) {
        const size_t place = places.at(parameter.unsafeGetTensorImpl());
        bucket.parameters.push_back(state_->names[place]);
        bucket.parameter_indices.push_back(place);
        bucket.bytes += static_cast<int64_t>(parameter.nbytes());
      }
      buckets.push_back(std::move(bucket));
    }
    return buckets;
  });
}

const std::vector<std::string>& DistributedModule::reduced_parameter_names() const { return state_->names; }
int64_t DistributedModule::steps() const { return state_->steps; }
void DistributedModule::set_steps(int64_t steps) const {
  state_->steps = steps;
  state_->told_steps = steps;  // or the step that bears the number again would be no news to the listeners
  state_->steps_may_differ = false;  // whoever sets it has the same count on every rank
}
std::shared_ptr<const void> DistributedModule::on_step(std::function<void()> listener) const {
  auto kept = std::make_shared<const detail::StepListener>(std::move(listener));
  state_->step_listeners.push_back(kept);
  return kept;
}
bool DistributedModule::last_forward_was_local() const { return !state_->require_forward_param_sync; }
bool DistributedModule::is_out_of_data() const { return state_->answered > 0; }
bool DistributedModule::is_behind() const { return state_->join && state_->answered > 0; }
bool DistributedModule::buffers_may_differ() const { return state_->buffers_written; }
std::optional<DistributedModule> DistributedModule::around(const torch::nn::Module& module) {
  auto state = detail::find_wrapper(module);
  if (!state) return std::nullopt;
  return DistributedModule(std::move(state));
}
const Options& DistributedModule::options() const { return state_->options; }
const c10::intrusive_ptr<c10d::ProcessGroup>& DistributedModule::process_group() const { return state_->group; }
torch::Device DistributedModule::device() const { return state_->device; }
std::shared_ptr<c10d::Reducer> DistributedModule::reducer() const { return state_->reducer; }

void DistributedModule::restore_full_precision() const {
  if (state_->low_precision) state_->low_precision->restore();
}

void DistributedModule::sync_module_states(int src) const {
  restore_full_precision();
  if (state_->world_size > 1) state_->broadcast_module_states(src);
}
void DistributedModule::check_reducer_finalized() const { state_->check_last_backward(); }
void DistributedModule::reset() const { state_->reset(); }

void DistributedModule::update_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group) const {
  state_->group = std::move(group);
  state_->rank = state_->group->getRank();
  state_->world_size = state_->group->getSize();
  if (!state_->reducer && state_->needs_reducer()) {
    state_->make_reducer();
  } else if (!state_->needs_reducer()) {
    state_->logger.reset();
    state_->reducer.reset();
  }
  state_->reset();
}

std::ostream& operator<<(std::ostream& out, const DistributedModule& net) {
  return out << "DistributedDataParallel(" << *net.module() << ")";
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const DistributedModule& net) {
  net.restore_full_precision();
  net.module()->save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, const DistributedModule& net) {
  net.restore_full_precision();
  net.module()->load(archive);
  return archive;
}

namespace detail {

ForwardPass::ForwardPass(const DistributedModule& net) : state_(net.state()) {
  state_->before_forward();
  if (state_->synchronises_batch_norm()) sync_batch_norm_ = std::make_unique<SyncBatchNormScope>();
  changes_inputs_ = state_->changes_inputs();
}
ForwardPass::~ForwardPass() {
  if (!finished_) state_->forward_failed();
}
void ForwardPass::change(const TensorPointers& inputs) const { state_->change_inputs(inputs); }
void ForwardPass::finish(const TensorPointers& outputs) {
  finished_ = true;
  sync_batch_norm_.reset();
  state_->after_forward(outputs);
}

}  // namespace detail
}  // namespace lockstep::ddp
