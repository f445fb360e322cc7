#include "ddp/distributed_module.h"

#include <ostream>
#include <unordered_set>
#include <utility>

#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"
#include "protocol/error.h"

namespace lockstep::ddp {
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

NoSync::NoSync(const DistributedModule& net) : state_(detail::state_of(net)), before_(state_->requires_grad_sync()) {
  state_->require_grad_sync(false);
}
NoSync::~NoSync() { state_->require_grad_sync(before_); }

DistributedModule::DistributedModule(std::shared_ptr<torch::nn::Module> module, Options options)
    : state_(std::make_shared<detail::State>(std::move(module), std::move(options))) {
  state_->construct();
}
DistributedModule::DistributedModule(std::shared_ptr<detail::State> state) : state_(std::move(state)) {}

const std::shared_ptr<torch::nn::Module>& DistributedModule::module() const { return state_->replica().module(); }
std::vector<torch::Tensor> DistributedModule::parameters() const { return named_parameters().values(); }
torch::OrderedDict<std::string, torch::Tensor> DistributedModule::named_parameters() const {
  return each_once(module()->named_parameters());
}
torch::OrderedDict<std::string, torch::Tensor> DistributedModule::named_buffers() const {
  return each_once(module()->named_buffers());
}
void DistributedModule::train(bool on) const { module()->train(on); }
bool DistributedModule::is_training() const { return module()->is_training(); }
void DistributedModule::zero_grad(bool set_to_none) const { module()->zero_grad(set_to_none); }

bool DistributedModule::require_backward_grad_sync() const { return state_->requires_grad_sync(); }
void DistributedModule::require_backward_grad_sync(bool on) const { state_->require_grad_sync(on); }

void DistributedModule::join(const std::function<void()>& training_loop, const JoinOptions& options) const {
  ddp::join({*this}, training_loop, options);
}

void DistributedModule::register_comm_hook(CommHook hook) const { state_->register_hook(std::move(hook)); }
void DistributedModule::register_builtin_comm_hook(c10d::BuiltinCommHookType hook) const {
  state_->register_hook(hook);
}
void DistributedModule::register_buffer_comm_hook(BufferCommHook hook, BufferCommHookLocation location) const {
  state_->register_buffer_hook(std::move(hook), location);
}

void DistributedModule::set_static_graph() const { state_->set_static_graph(); }
void DistributedModule::set_ddp_sink_clone(bool clone) const { state_->set_sink_clone(clone); }
at::DDPLoggingData DistributedModule::get_ddp_logging_data() const { return state_->logging_data(); }
void DistributedModule::set_ddp_runtime_logging_sample_rate(int sample_rate) const {
  if (sample_rate < 1) throw ArgumentError("the sample rate of logging must be 1 or greater");
  if (const auto& reducer = state_->reducer()) reducer->set_ddp_runtime_logging_sample_rate(sample_rate);
}

std::vector<Bucket> DistributedModule::buckets() const { return state_->buckets(); }
const std::vector<std::string>& DistributedModule::reduced_parameter_names() const { return state_->replica().names(); }
std::shared_ptr<c10d::Reducer> DistributedModule::reducer() const { return state_->reducer().get(); }
int64_t DistributedModule::steps() const { return state_->steps().count(); }
const Options& DistributedModule::options() const { return state_->options(); }
const c10::intrusive_ptr<c10d::ProcessGroup>& DistributedModule::process_group() const { return state_->group().get(); }
torch::Device DistributedModule::device() const { return state_->replica().device(); }

void DistributedModule::sync_module_states(int src) const {
  restore_full_precision();
  state_->follow_regroup();
  if (state_->group().size() > 1) state_->broadcast_module_states(src);
}
void DistributedModule::check_reducer_finalized() const { state_->check_last_backward(); }
void DistributedModule::reset() const { state_->reset(); }
void DistributedModule::update_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group) const {
  state_->exchange_group(std::move(group));
}
void DistributedModule::restore_full_precision() const { state_->restore_full_precision(); }

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

const std::shared_ptr<State>& state_of(const DistributedModule& net) { return net.state_; }

ForwardPass::ForwardPass(const DistributedModule& net) : state_(state_of(net)) {
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
