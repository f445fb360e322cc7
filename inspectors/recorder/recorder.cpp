#include "inspectors/recorder/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/dist.h"
#include "inspectors/compare/folders.h"
#include "inspectors/compare/recording.h"
#include "inspectors/recorder/rounding_noise.h"
#include "inspectors/recorder/tensors.h"
#include "inspectors/trace/op_trace.h"
#include "protocol/dist_error.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/launchers.h"

namespace lockstep::inspect {
namespace {

using compare::Piece;
using compare::PieceKind;

/// Returns "BatchNorm2d" for torch::nn::BatchNorm2dImpl, as Python calls it.
std::string type_of(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t at = name.rfind("::"); at != std::string::npos) name.erase(0, at + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

double dropout_of(const torch::nn::Module& module) {
  if (!module.is_training()) return 0;
  if (const auto* each = module.as<torch::nn::DropoutImpl>()) return each->options.p();
  if (const auto* each = module.as<torch::nn::Dropout2dImpl>()) return each->options.p();
  if (const auto* each = module.as<torch::nn::Dropout3dImpl>()) return each->options.p();
  if (const auto* each = module.as<torch::nn::AlphaDropoutImpl>()) return each->options.p();
  if (const auto* each = module.as<torch::nn::FeatureAlphaDropoutImpl>()) return each->options.p();
  if (const auto* each = module.as<torch::nn::MultiheadAttentionImpl>()) return each->options.dropout();
  if (const auto* each = module.as<torch::nn::TransformerEncoderLayerImpl>()) return each->options.dropout();
  if (const auto* each = module.as<torch::nn::TransformerDecoderLayerImpl>()) return each->options.dropout();
  if (const auto* each = module.as<torch::nn::LSTMImpl>()) return each->options.dropout();
  if (const auto* each = module.as<torch::nn::GRUImpl>()) return each->options.dropout();
  if (const auto* each = module.as<torch::nn::RNNImpl>()) return each->options.dropout();
  return 0;
}

/// Returns the rank that a recording is of, and the number of ranks. A group that the program has made without dist:: is not
/// seen: there the launcher's variables say it.
std::pair<int, int> place_of(RecordedRank rank) {
  if (rank == RecordedRank::alone) return {0, 1};
  if (dist::is_initialized()) return {dist::get_rank(), dist::get_world_size()};
  const auto launched = protocol::launched_rank(protocol::variable);
  return launched ? std::pair(launched->rank, launched->world_size) : std::pair(0, 1);
}

compare::RecordedRun run_from_environment() {
  static std::atomic<bool> is_taken = false;
  const char* folder = std::getenv("LOCKSTEP_COMPARE");
  if (!folder) return {};
  if (is_taken.exchange(true))
    throw Error("inspect::CompareRecorder(): this program has made one already, and a second would record over it");
  return compare::read_run_options(folder);
}

}  // namespace

struct CompareRecorder::State {
  State(const compare::RecordedRun& given, const compare::RecordingAbout& about)
      : run(given), writer(compare::path_of_recording(given.folder, about.rank), about) {
    if (run.noise > 0) noise.emplace(run.noise);
    if (!run.replacements.empty()) replacements.emplace(compare::path_of_recording(run.replacements, about.rank));
  }

  void add(PieceKind kind, const std::string& name, const torch::Tensor& tensor, uint32_t batch = 0, uint32_t call = 0,
           uint8_t flags = 0) {
    Piece piece{.step = static_cast<uint32_t>(step), .micro_batch = batch, .call = call, .kind = kind, .flags = flags};
    compare::RecordedTensor recorded{.piece = piece, .readable = {}};
    const bool is_there = !(flags & Piece::absent);
    if (is_there && tensor.is_complex()) {
      note(name + " is complex, which is not compared");
      return;
    }
    const Unrecorded unrecorded;
    const WithoutRoundingNoise no_noise;
    if (is_there)
      recorded = compare::recorded(std::move(piece), tensor, tensor.sizes(),
                                   std::vector<int64_t>(static_cast<size_t>(tensor.dim())));
    const std::lock_guard lock(mutex);
    recorded.piece.name = number_of(name);
    writer.add_piece(recorded.piece, is_there && run.has_values ? recorded.values() : std::string_view());
    if (!replacements || !is_there) return;
    const bool is_of_model =
        kind == PieceKind::forward && tensor.has_storage() &&
        std::ranges::any_of(of_models, [&](const torch::Tensor& each) { return each.is_alias_of(tensor); });
    if (is_of_model || !compare::replace_values(tensor, *replacements, name, recorded.piece))
      note_once(name + compare::kNotReplaced);
  }

  void note(const std::string& text) {
    const std::lock_guard lock(mutex);
    note_once(text);
  }

  uint32_t current() const { return micro_batch < 0 ? 0 : static_cast<uint32_t>(micro_batch); }
  uint32_t next_call(PieceKind kind, const std::string& name) { return next_call(kind, name, current()); }
  uint32_t next_call(PieceKind kind, const std::string& name, uint32_t batch) {
    const std::lock_guard lock(mutex);
    return calls[{kind, name, batch}]++;
  }
  void set_noise(bool on) {
    if (noise) noise->set_on(on);
  }

  const compare::RecordedRun run;
  std::mutex mutex;  // autograd has a thread for each device
  compare::RecordingWriter writer;
  std::optional<RoundingNoise> noise;
  std::optional<compare::Replacements> replacements;  // values are replaced once they are recorded
  int64_t step = 0;
  int64_t micro_batch = -1;  // of this step
  int models = 0;
  bool is_over = false, is_closed = false;
  std::vector<std::pair<std::string, torch::Tensor>> parameters;  // of all models
  std::vector<torch::Tensor> of_models;  // these and the buffers
  std::map<std::string, std::string> types;  // of modules, by name
  std::map<std::tuple<PieceKind, std::string, uint32_t>, uint32_t> calls;  // in this step, by micro-batch
  std::set<std::string> notes;

 private:
  void note_once(const std::string& text) {
    if (notes.insert(text).second) writer.add_note(text);
  }

  uint32_t number_of(const std::string& name) {
    const auto known = numbers.find(name);
    if (known != numbers.end()) return known->second;
    const auto type = types.find(name);
    return numbers[name] = writer.add_name({name, type == types.end() ? "" : type->second});
  }

  std::map<std::string, uint32_t> numbers;
};

CompareRecorder::CompareRecorder() {
  if (const compare::RecordedRun run = run_from_environment(); !run.folder.empty())
    state_ = CompareRecorder(run).state_;
}

CompareRecorder::CompareRecorder(const compare::RecordedRun& run, RecordedRank rank) {
  const auto [number, world_size] = place_of(rank);
  std::error_code error;
  std::filesystem::create_directories(run.folder, error);
  if (error) throw Error(run.folder + " can't be made: " + error.message());
  state_ = std::make_shared<State>(run, compare::RecordingAbout{.rank = number,
                                                                .world_size = world_size,
                                                                .torch = TORCH_VERSION,
                                                                .steps = run.steps,
                                                                .has_values = run.has_values,
                                                                .noise = static_cast<double>(run.noise)});
}

CompareRecorder::~CompareRecorder() {
  if (state_) state_->set_noise(false);  // a hook that runs on another thread may keep the state for a while
}

void CompareRecorder::add_model(const torch::nn::Module& module) {
  if (!state_ || state_->is_over) return;
  const auto check_dropout = [](const std::string& name, const torch::nn::Module& each) {
    if (const double p = dropout_of(each); p > 0)
      throw dist::ArgumentError(
          fmt::format("inspect::CompareRecorder: {} has dropout ({:g}), whose random numbers depend on the layout: set "
                      "it to 0 in the runs that are compared",
                      name, p));
  };
  check_dropout("the model", module);
  const std::string prefix = state_->models++ == 0 ? "" : fmt::format("model{}.", state_->models);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    check_dropout(item.key(), *item.value());
    state_->types.emplace(prefix + item.key(), type_of(*item.value()));
  }
  for (const torch::Tensor& each : module.buffers()) state_->of_models.push_back(each);
  for (const auto& item : module.named_parameters()) {
    state_->of_models.push_back(item.value());
    state_->parameters.emplace_back(prefix + item.key(), item.value());
    if (state_->step == 0) state_->add(PieceKind::initial, prefix + item.key(), item.value());
  }
}

void CompareRecorder::samples(const std::vector<torch::Tensor>& inputs) {
  if (!state_ || state_->is_over) return;
  if (state_->models == 0)
    throw dist::ArgumentError(
        "inspect::CompareRecorder::samples: call model(net) first, whose parameters are recorded");
  ++state_->micro_batch;
  {
    const Unrecorded unrecorded;
    const WithoutRoundingNoise no_noise;
    const std::vector<uint64_t> hashes = compare::sample_hashes(inputs);
    if (hashes.empty()) state_->note("samples() was given no tensor with rows, so samples were not compared");
    const compare::Samples samples{
        .step = static_cast<uint32_t>(state_->step), .micro_batch = state_->current(), .hashes = hashes};
    if (state_->replacements) state_->replacements->check_samples(samples);
    const std::lock_guard lock(state_->mutex);
    state_->writer.add_samples(samples);
  }
  state_->set_noise(true);
}

torch::Tensor CompareRecorder::output(const std::string& name, const torch::Tensor& value) {
  if (!state_ || state_->is_over) return value;
  const uint32_t batch = state_->current(), call = state_->next_call(PieceKind::forward, name);
  state_->add(PieceKind::forward, name, value, batch, call);
  if (value.requires_grad())
    value.register_hook(
        [state = std::weak_ptr<State>(state_), step = state_->step, name, batch, call](const torch::Tensor& given) {
          const auto alive = state.lock();
          if (!alive || alive->is_over || alive->step != step || !given.defined()) return given;
          // Another value may have the same gradient, whose replacement is its own.
          const torch::Tensor gradient = alive->replacements ? given.clone() : given;
          // Several losses may be traced back through one output. Each gradient has a name of its own.
          const uint32_t earlier = alive->next_call(PieceKind::backward, fmt::format("{}, call {}", name, call), batch);
          alive->add(PieceKind::backward, earlier == 0 ? name : fmt::format("{} (backward {})", name, earlier + 1),
                     gradient, batch, call);
          return gradient;
        });
  return value;
}

torch::Tensor CompareRecorder::loss(const torch::Tensor& value) {
  if (!state_ || state_->is_over) return value;
  if (value.numel() != 1) throw dist::ArgumentError("inspect::CompareRecorder::loss: a loss is one number");
  state_->add(PieceKind::loss, "loss", value.detach().reshape({}), state_->current(),
              state_->next_call(PieceKind::loss, "loss"));
  return value;
}

std::vector<torch::Tensor> CompareRecorder::trained() const {
  std::vector<torch::Tensor> parameters;
  if (state_)
    for (const auto& [name, parameter] : state_->parameters)
      if (parameter.requires_grad()) parameters.push_back(parameter);
  return parameters;
}

void CompareRecorder::begin_update(const std::vector<torch::Tensor>& parameters) {
  if (!state_ || state_->is_over) return;
  if (state_->micro_batch < 0)
    throw dist::ArgumentError(
        "inspect::CompareRecorder::step: call samples({…}) before forward, in each micro-batch; and step() once for "
        "all "
        "optimizers of a step: it takes a function, too");
  state_->set_noise(false);
  for (const auto& [name, parameter] : state_->parameters) {
    if (!parameter.requires_grad()) continue;
    if (std::ranges::none_of(parameters, [&](const torch::Tensor& each) { return each.is_same(parameter); })) continue;
    const torch::Tensor& gradient = parameter.grad();
    state_->add(PieceKind::gradient, name, gradient, 0, 0, gradient.defined() ? 0 : Piece::absent);
  }
  for (const torch::Tensor& each : parameters)
    if (each.requires_grad() &&
        std::ranges::none_of(state_->parameters, [&](const auto& known) { return known.second.is_same(each); }))
      state_->note("an optimizer has parameters of no model that was recorded, which are not compared");
}

void CompareRecorder::end_update(const std::vector<torch::Tensor>& parameters) {
  if (!state_ || state_->is_over) return;
  for (const auto& [name, parameter] : state_->parameters)
    if (parameter.requires_grad() &&
        std::ranges::any_of(parameters,
                            [&, &known = parameter](const torch::Tensor& each) { return each.is_same(known); }))
      state_->add(PieceKind::parameter, name, parameter);
  state_->writer.end_step();
  state_->calls.clear();
  state_->micro_batch = -1;
  state_->is_over = ++state_->step >= state_->run.steps;
  if (state_->is_over) close();
}

bool CompareRecorder::is_over() const { return state_ && state_->is_over; }

void CompareRecorder::close() {
  if (!state_ || std::exchange(state_->is_closed, true)) return;
  state_->set_noise(false);
  state_->is_over = true;
  state_->writer.close();
  if (state_->step == 0)
    throw Error(state_->run.folder + ": no step was recorded: is recorder.step(optimizer) called?");
}

namespace detail {

std::vector<compare::RecordedRun> begin_reference(const std::string& folder, const CompareOptions& options) {
  if (dist::is_initialized() && dist::get_rank() != 0) return {};
  compare::remove_runs(folder);
  return compare::runs_of_reference(folder, options.steps(), options.runs());
}

compare::RecordedRun begin_candidate(const std::string& folder, const CompareOptions& options) {
  compare::RecordedRun run = compare::run_of_candidate(folder, options.steps());
  const bool has_group = dist::is_initialized();
  if (!has_group || dist::get_rank() == 0) {
    compare::remove_candidate(folder);
    compare::prepare_run(run);
  }
  if (has_group) dist::barrier();
  return run;
}

std::optional<compare::RecordedRun> begin_replaced(const std::string& folder, const CompareOptions& options) {
  if (!options.all_faults()) return std::nullopt;
  const compare::RecordedRun run = compare::run_with_replacements(folder, options.steps());
  const bool has_group = dist::is_initialized();
  if (has_group) dist::barrier();  // all recordings are complete
  enum Answer { same, differs, failed };
  std::string problem = "rank 0 could not judge the candidate";
  Answer answer = same;
  if (!has_group || dist::get_rank() == 0) {
    try {
      compare::RunFolders folders = compare::reference_in(folder);
      compare::set_candidate(folders, folder);
      if (compare::judge_folders(folders, {}).differing > 0) {
        compare::write_replacements(folder, folders, {});
        compare::prepare_run(run);
        answer = differs;
      }
    } catch (const std::exception& error) {
      problem = error.what();
      answer = failed;
    }
  }
  if (has_group) {  // the others wait for it, also where it has failed
    std::vector<int> sent{answer};
    dist::broadcast_object_list(sent, 0);
    answer = static_cast<Answer>(sent.front());
  }
  if (answer == failed) throw Error("inspect::record_candidate: " + problem);
  return answer == differs ? std::optional(run) : std::nullopt;
}

}  // namespace detail
}  // namespace lockstep::inspect
