#include "shell/cells/repeatable_objects.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMost = 256;

}  // namespace

RepeatableObjects::Source RepeatableObjects::source_of(const CellRequest& request) {
  return {request.text, request.ranks, request.optimize, request.debug, request.directory};
}

void RepeatableObjects::remember(const CellRequest& request, const CellObject& object) {
  if (objects_.size() == kMost) objects_.clear();
  objects_.emplace(source_of(request), object);
}

std::optional<CellObject> RepeatableObjects::find(const CellRequest& request, int64_t definitions) {
  if (definitions_ != definitions) forget();
  definitions_ = definitions;
  const auto known = objects_.find(source_of(request));
  return known == objects_.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace lockstep::shell
