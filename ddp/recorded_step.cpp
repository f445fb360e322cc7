#include "ddp/recorded_step.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "ddp/saved_state.h"
#include "protocol/dist_error.h"

namespace lockstep::ddp {

using dist::Player;
using nlohmann::json;

/// Tensors and their names, and what they mean.
struct StepMark::Kept {
  dist::Recorder::Kept record;
  std::vector<std::string> names;
  std::deque<std::string> bytes;  // that tensors view

  void add(std::string name, torch::Tensor tensor) {
    names.push_back(std::move(name));
    record.tensors.push_back(std::move(tensor));
  }
};

namespace {
/// The step before which the replay ends; nothing: it goes on.
std::optional<int64_t> until() {
  const char* text = std::getenv("LOCKSTEP_REPLAY_UNTIL");
  int64_t number = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), number).ec != std::errc()) return std::nullopt;
  return number;
}

at::Generator generator() { return at::globalContext().defaultGenerator(torch::kCPU); }
}  // namespace

/// Modules, then optimizers as bytes.
StepMark::Kept StepMark::take_state() const {
  if (has_schedule_)
    throw dist::Error(
        "a scheduler of learning rates has no state that can be read: have it step outside of the marked "
        "step, and do not give it to ddp::step");
  Kept kept;
  json layouts = json::array();
  for (torch::nn::Module* module : modules_)
    for (auto& [name, tensor] : detail::tensors_of(*module)) kept.add(name, tensor);
  for (const DistributedModule& wrapper : wrappers_) layouts.push_back(detail::layout_of(wrapper));
  kept.record.text = {{"modules", kept.names.size()}, {"layouts", layouts}};
  try {
    for (const torch::optim::Optimizer* optimizer : optimizers_) {
      std::string& bytes = kept.bytes.emplace_back(detail::bytes_of(*optimizer));
      constexpr size_t kEmptyArchive = 4096;  // bytes that it has at most
      if (bytes.size() <= kEmptyArchive && !detail::has_contents(bytes))
        throw std::runtime_error("its class has no save()");
      kept.add("the state of an optimizer",
               torch::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, torch::kUInt8));
    }
  } catch (const std::exception& error) {  // of LibTorch, or of a class of the user's
    throw dist::Error("an optimizer can't be saved: " + detail::message_of(error));
  }
  return kept;
}

StepMark::Kept StepMark::take_beginning() const {
  Kept kept;
  kept.add("the state of the generator", generator().get_state());
  for (size_t i = 0; i < batch_.size(); ++i) kept.add(fmt::format("tensor {} of the batch", i), batch_[i]);
  kept.record.text = json::object();
  return kept;
}

RecordedStep StepMark::begin() {
  const auto context = dist::current_context();
  const int64_t number =
      context && context->player() ? context->player()->take_step_number() : dist::take_step_number();
  if (!context) return {number, true};
  const at::DisableRecordFunctionGuard no_operators;  // of the program
  const torch::NoGradGuard no_grad;
  if (const auto& player = context->player()) return {number, replay(*player, number)};
  const auto& recorder = context->recorder();
  if (!recorder || !recorder->stopped().empty()) return {number, true};
  try {
    std::optional<Kept> state;
    if (recorder->wants_state(number)) state = take_state();
    recorder->begin_step(number, take_beginning().record, state ? std::optional(state->record) : std::nullopt);
  } catch (const dist::Error& error) {  // a value that is not kept: the program goes on without a recording
    recorder->stop(error.what());
  }
  return {number, true};
}

/// Returns whether the step runs.
bool StepMark::replay(Player& player, int64_t number) {
  const Player::Begun begun = player.begin_step(number);
  if (begun.then == Player::Then::skip && until() != number) return false;
  if (begun.then == Player::Then::end) throw dist::Error(fmt::format("the recording ends before step {}", number));
  const bool sets = begun.then == Player::Then::set_state;
  try {
    if (begun.state) replay_state(player, *begun.state, sets);
    if (begun.step) replay_beginning(player, *begun.step, number, sets || number == 0);
  } catch (const json::exception& error) {
    throw dist::Error(fmt::format("step {} of the recording can't be read: {}", number, error.what()));
  }
  if (until() != number) return true;
  player.stop_here(number);
  throw dist::Error(fmt::format("the replay ends before step {}, as --until says", number));
}

/// Puts the recorded state back, or compares it with that of this run.
void StepMark::replay_state(Player& player, const dist::Record& record, bool sets) {
  Kept now = take_state();
  const json& text = record.text;
  std::vector<torch::Tensor>& tensors = now.record.tensors;
  const size_t modules = tensors.size() - optimizers_.size();
  if (text.at("modules") != modules || text.at("tensors").size() != tensors.size() ||
      text.at("layouts").size() != wrappers_.size())
    player.depart("the step is marked with other objects than on the recorded rank");
  std::vector<torch::Tensor> recorded;
  for (size_t i = 0; i < modules; ++i) recorded.push_back(sets ? tensors[i] : torch::empty_like(tensors[i]));
  for (size_t i = modules; i < tensors.size(); ++i)
    recorded.push_back(torch::empty(text.at("tensors").at(i).at("shape").get<std::vector<int64_t>>(), torch::kUInt8));
  player.fill_from(record, recorded);
  if (!sets) {
    std::copy(recorded.begin() + static_cast<std::ptrdiff_t>(modules), recorded.end(),
              tensors.begin() + static_cast<std::ptrdiff_t>(modules));
    if (const int index = player.first_difference(record, tensors); index >= 0)
      player.depart(now.names.at(static_cast<size_t>(index)) + " has other bits than on the recorded rank");
  }
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    // Its bytes have addresses, which are others in each process. What it is after it was read can be compared.
    const uint64_t before = sets ? 0 : detail::save(*optimizers_[i]).digest;
    if (const std::string problem = detail::load(*optimizers_[i], detail::bytes_of(recorded[modules + i]));
        !problem.empty())
      throw dist::Error("the recorded state of an optimizer can't be put back: " + problem);
    if (!sets && detail::save(*optimizers_[i]).digest != before)
      player.depart("the state of an optimizer is another one than on the recorded rank");
  }
  for (size_t i = 0; sets && i < wrappers_.size(); ++i)
    if (!detail::take_over_steps(wrappers_[i], text.at("layouts").at(i)))
      player.depart("a wrapper has other buckets than on the recorded rank");
}

/// Puts the generator's state and the values of the batch back.
void StepMark::replay_beginning(Player& player, const dist::Record& record, int64_t number, bool may_differ) {
  std::vector<torch::Tensor> tensors = take_beginning().record.tensors;
  const torch::Tensor before = std::exchange(tensors[0], torch::empty_like(tensors[0]));
  player.fill_from(record, tensors);
  if (!may_differ && !torch::equal(before, tensors[0]))
    std::fprintf(
        stderr,
        "lockstep: step %lld begins with another state of the random generator than the recorded one, which is "
        "put in its place\n",
        static_cast<long long>(number));
  generator().set_state(tensors[0]);
}

}  // namespace lockstep::ddp
