#include "collectives/watch/collective_listener.h"

#include <memory>

namespace lockstep::dist {

namespace {
thread_local std::shared_ptr<const std::function<void()>> collective_listener;
}

void set_collective_listener(std::function<void()> listener) {
  collective_listener = listener ? std::make_shared<const std::function<void()>>(std::move(listener)) : nullptr;
}

void call_collective_listener() {
  if (!collective_listener) return;
  const auto kept = collective_listener;  // it may set another one
  (*kept)();
}

}  // namespace lockstep::dist
