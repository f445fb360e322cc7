#include "python/operators/subjects.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "protocol/verdict.h"

namespace lockstep::python {
namespace {

using inspect::Item;
using inspect::Subject;
using nlohmann::json;

thread_local Call given_call;

Item item_of(const Call& call, const json& item) {
  if (item.contains("value")) {
    Subject subject;
    inspect::describe_value(subject, item.at("name"), item.at("value"));
    subject.items.back().kind = item.at("kind");
    return std::move(subject.items.back());
  }
  const at::Tensor& tensor = call.tensor(item.at("tensor"));
  return {.name = item.at("name"),
          .kind = item.at("kind"),
          .tensor = tensor.detach(),
          .value = {},
          .trainable = item.value("trainable", tensor.requires_grad())};
}

/// Returns "train(), norm eval()": the module's mode, and those of submodules that differ from their parent's, as the
/// item of a LibTorch module.
std::string modes_text(const json& modes) {
  const auto mode = [](bool training) { return training ? "train()" : "eval()"; };
  std::map<std::string, bool> by_name;
  std::string text;
  for (const json& each : modes) {
    const std::string name = each.at(0);
    const bool training = each.at(1);
    by_name[name] = training;
    const size_t dot = name.rfind('.');
    const auto parent = by_name.find(dot == std::string::npos ? "" : name.substr(0, dot));
    if (name.empty())
      text = mode(training);
    else if (parent == by_name.end() || parent->second != training)
      text += fmt::format(", {} {}", name, mode(training));
  }
  return text;
}

}  // namespace

inspect::ShardedSubject subject_of(const Call& call, const json& description) {
  inspect::ShardedSubject result;
  Subject& subject = result.common;
  subject.name = description.at("name");
  if (description.value("rng", false)) inspect::describe(subject, "", inspect::rng());
  for (const json& item : description.at("items")) subject.items.push_back(item_of(call, item));
  subject.type = description.at("type");
  if (const json& modes = description.at("modes"); !modes.is_null())
    subject.items.push_back({.name = "training", .kind = FindingKind::mode, .tensor = {}, .value = modes_text(modes)});
  inspect::number_equal_names(subject.items);
  subject.buffers_are_local = description.value("buffers_are_local", false);
  subject.buffers_are_written = description.value("buffers_are_written", false);
  for (const json& index : description.value("stepped", json::array())) subject.stepped.push_back(call.tensor(index));
  for (const json& each : description.at("parts"))
    result.parts.push_back({.item = item_of(call, each),
                            .place = each.at("place"),
                            .mesh = RankSet(each.at("mesh").get<std::vector<int>>())});
  result.elsewhere = description.at("elsewhere");
  if (description.value("dropout", false)) {
    at::Tensor drawn_for;
    if (!subject.items.empty()) drawn_for = subject.items.front().tensor;
    if (!drawn_for.defined() && !result.parts.empty()) drawn_for = result.parts.front().item.tensor;
    subject.dropout = inspect::generator_state_for(drawn_for);
  }
  if (const json& inputs = description.at("inputs"); !inputs.is_null()) subject.inputs = inputs.get<inspect::Hash>();
  if (const json& doubt = description.at("doubt"); !doubt.is_null())
    subject.doubt = {.severity = doubt.at("is_fault").get<bool>() ? Severity::fault : Severity::note,
                     .kind = doubt.at("kind"),
                     .text = doubt.at("text")};
  return result;
}

inspect::GradientSubject gradients_of(const Call& call, const json& description) {
  inspect::GradientSubject subject;
  subject.name = description.at("name");
  subject.type = description.at("type");
  for (const json& each : description.at("parameters"))
    subject.parameters.push_back({.name = each.at("name"), .parameter = call.tensor(each.at("tensor"))});
  if (const json& wrapper = description.at("wrapper"); !wrapper.is_null())
    subject.other_wrapper = {.skips_unused = wrapper.at("skips_unused"),
                             .last_forward_was_local = wrapper.at("last_forward_was_local")};
  return subject;
}

inspect::TensorNames names_of(const Call& call, const json& list) {
  inspect::TensorNames names;
  for (const json& each : list)
    names.learn({.object = each.at("object"), .name = each.at("name"), .kind = each.at("kind"), .wrapped = {}},
                call.tensor(each.at("tensor")));
  return names;
}

inspect::SampleOrder samples_of(const Call& call, const json& description) {
  inspect::SampleOrder order;
  order.samples = inspect::detail::numbers_of(call.tensor(description.at("samples")));
  if (const json& batches = description.at("batches"); !batches.is_null())
    order.batches = inspect::detail::numbers_of(call.tensor(batches));
  if (const json& epoch = description.at("epoch"); !epoch.is_null()) order.reported_epoch = epoch.get<int64_t>();
  if (const json& seed = description.at("worker_seed"); !seed.is_null()) order.worker_seed = seed.get<int64_t>();
  if (const json& address = description.at("of_epoch"); !address.is_null())
    order.of_epoch = [function = python_function(address)](int64_t epoch) {
      call_python(function, epoch);
      return inspect::detail::numbers_of(take_given().tensors.at(0));
    };
  return order;
}

std::vector<inspect::NamedMemory> memory_of(const Call& call, const json& named) {
  std::vector<inspect::NamedMemory> result;
  for (const json& each : named) {
    inspect::NamedMemory memory{each.at("name"), {}};
    for (const json& tensor : each.at("tensors"))
      memory.tensors.push_back({tensor.at("kind"), call.tensor(tensor.at("tensor")), tensor.at("name")});
    result.push_back(std::move(memory));
  }
  return result;
}

void save_all(inspect::SavedState& saved, const Call& call, const json& tensors) {
  for (const json& index : tensors) saved.save(call.tensor(index));
}

void give(Call given) { given_call = std::move(given); }

Call take_given() { return std::exchange(given_call, Call()); }

}  // namespace lockstep::python
