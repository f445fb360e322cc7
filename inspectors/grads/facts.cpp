#include "inspectors/grads/facts.h"

#include <nlohmann/json.hpp>

#include "inspectors/trace/cell_code.h"

namespace lockstep::inspect {

using nlohmann::json;

namespace {

json packed(const GradFacts& facts) {
  if (!facts.present) return nullptr;
  const Fingerprint& mark = facts.mark;
  return {mark.hash, mark.nan_count, mark.inf_count, mark.norm, mark.abs_max, facts.sketch};
}

GradFacts unpacked(const json& value) {
  GradFacts facts;
  if (value.is_null()) return facts;
  facts.present = true;
  facts.mark = {.hash = value.at(0),
                .nan_count = value.at(1),
                .inf_count = value.at(2),
                .norm = value.at(3),
                .abs_max = value.at(4)};
  facts.sketch = value.at(5);
  return facts;
}

}  // namespace

RankFacts facts_of(const GradientSubject& subject, const std::vector<size_t>& indices) {
  RankFacts facts;
  const auto observed = gradients_seen(subject);
  facts.watched = observed.has_value();
  if (observed) {
    facts.steps = observed->steps;
    facts.sync_wanted = observed->sync_wanted;
    facts.passes = observed->passes;
  }
  for (const size_t index : indices) {
    const at::Tensor& parameter = subject.parameters[index].parameter;
    if (!parameter.requires_grad() || parameter.grad().defined()) continue;
    facts.older = older_definitions(subject.name, /*itself=*/subject.type == "optimizer");
    break;
  }
  std::vector<at::Tensor> gradients;
  for (const size_t index : indices)
    if (const at::Tensor& gradient = subject.parameters[index].parameter.grad(); gradient.defined())
      gradients.push_back(gradient);
  const std::vector<Fingerprint> marks = gradient_fingerprints(gradients);
  size_t next = 0;
  for (const size_t index : indices) {
    ParameterFacts each;
    if (subject.parameters[index].parameter.grad().defined()) {
      each.now = {.present = true, .mark = marks[next], .sketch = sketch_of(gradients[next])};
      ++next;
    }
    if (observed && observed->gradients[index]) {
      const ObservedGradient& last = *observed->gradients[index];
      each.before = {.present = true, .mark = last.mark, .sketch = last.sketch};
      each.same_for = last.same_for;
      each.stepped = last.stepped;
      each.on_used = last.on_used;
      // The program has changed it (unscaled, clipped): a reduction would begin with the changed gradient. Zeros after
      // a step are gradients that were cleared.
      each.changed = each.now.present && each.now.mark.hash != last.mark.hash && !last.collective_since &&
                     !(last.stepped && each.now.zero());
      if (each.changed) each.before = each.now;
    }
    facts.parameters.push_back(std::move(each));
  }
  return facts;
}

void to_json(json& value, const ParameterFacts& facts) {
  value = {packed(facts.now), packed(facts.before), facts.same_for, facts.stepped, facts.changed, facts.on_used};
}

void from_json(const json& value, ParameterFacts& facts) {
  facts = {.now = unpacked(value.at(0)),
           .before = unpacked(value.at(1)),
           .same_for = value.at(2),
           .stepped = value.at(3),
           .on_used = value.at(5),
           .changed = value.at(4)};
}

}  // namespace lockstep::inspect
