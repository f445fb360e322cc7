#include "inspectors/nan/reduced_gradients.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "collectives/rank_context.h"
#include "inspectors/exchange/participants.h"

namespace lockstep::inspect {
namespace {

/// Is set when a rank names a bad value of its own in the step.
std::string announcement(int64_t generation, int64_t serial) {
  return fmt::format("inspect/nan/{}/{}", generation, serial);
}

std::string finite_key(const std::string& key, int rank) { return fmt::format("{}/finite/{}", key, rank); }

}  // namespace

void announce_bad_value(int64_t serial) {
  const auto context = dist::current_context();
  if (context && context->world_size() > 1)
    context->store()->set(announcement(context->generation(), serial), std::vector<uint8_t>{1});
}

bool names_reduced_gradient(int64_t serial) {
  const auto context = dist::current_context();
  if (!context || context->world_size() == 1) return true;
  return !context->store()->check({announcement(context->generation(), serial)}) &&
         own_rank() == live_ranks().ranks().front();
}

void LateReductions::add(int64_t serial, BadValue found, const Publish& publish) {
  const auto context = dist::current_context();
  if (!context || context->world_size() == 1) return publish(found);
  std::string key = announcement(context->generation(), serial);
  context->store()->set(finite_key(key, own_rank()), std::vector<uint8_t>{1});
  if (own_rank() == found.ranks.ranks().front()) undecided_.push_back({std::move(key), std::move(found)});
}

void LateReductions::decide(bool last, const Publish& publish) {
  const auto context = dist::current_context();
  std::erase_if(undecided_, [&](Undecided& each) {
    if (!context || context->store()->check({each.key})) return true;  // a rank has named its own gradient
    std::vector<std::string> finite;
    for (const int rank : each.found.ranks.ranks()) finite.push_back(finite_key(each.key, rank));
    each.found.finite_before = context->store()->check(finite);
    if (!each.found.finite_before && !last) return false;
    publish(each.found);
    return true;
  });
}

}  // namespace lockstep::inspect
