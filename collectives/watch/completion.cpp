#include "collectives/watch/completion.h"

#include <thread>

#include "collectives/transport/sigpipe.h"

namespace lockstep::dist {

Completion::Completion(c10::intrusive_ptr<c10d::Work> work, std::chrono::milliseconds limit) {
  state_->future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::thread([state = state_, work = std::move(work), limit]() mutable {
    const SigpipeBlocked quiet;
    std::exception_ptr error;
    try {
      work->wait(limit);
    } catch (...) {  // is everyone's who asks
      error = std::current_exception();
    }
    // The last reference to a tensor of Python takes the interpreter's lock. The program may end as soon as the state
    // is done, and Python then ends a thread that asks for its lock, which unwinds C++ up to std::terminate.
    work.reset();
    {
      std::lock_guard lock(state->mutex);
      state->done = true;
      state->error = error;
    }
    state->changed.notify_all();
    if (error)
      state->future->setError(error);
    else
      state->future->markCompleted(std::vector<at::Tensor>());
  }).detach();
}

bool Completion::done() const {
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool Completion::wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(state_->mutex);
  if (limit.count() > 0) return state_->changed.wait_for(lock, limit, [&] { return state_->done; });
  state_->changed.wait(lock, [&] { return state_->done; });
  return true;
}

std::exception_ptr Completion::error() const {
  std::lock_guard lock(state_->mutex);
  return state_->error;
}

}  // namespace lockstep::dist
