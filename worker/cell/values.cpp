#include "worker/cell/values.h"

#include <atomic>

#include "worker/process/host.h"
#include "worker/process/run_state.h"
#include "worker/process/standard_streams.h"

namespace lockstep::worker {
namespace {
std::atomic<int64_t> g_full_cell{0};  // whose values are shown in full
}  // namespace

void post_value(protocol::Value value) {
  flush_standard_streams();
  value.cell = run_state().cell();
  send_to_session(std::move(value));
}

void post_progress(protocol::Progress progress) {
  if (progress.state != LoopState::running) flush_standard_streams();
  send_to_session(std::move(progress));
}

void show_in_full() { g_full_cell = run_state().cell(); }
bool shows_in_full() { return g_full_cell == run_state().cell(); }

}  // namespace lockstep::worker
