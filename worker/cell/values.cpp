#include "worker/cell/values.h"

#include <atomic>

#include "worker/process/outbox.h"
#include "worker/process/output_pipes.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {
std::atomic<Outbox*> g_outbox{nullptr};
std::atomic<int64_t> g_full_cell{0};  // whose values are shown in full
}  // namespace

void send_values_to(Outbox& outbox) { g_outbox = &outbox; }

void post_value(std::string text, nlohmann::json data, bool as_range) {
  flush_standard_streams();
  Outbox* outbox = g_outbox;
  if (outbox) outbox->post(protocol::Value{run_state().cell(), std::move(text), std::move(data), as_range});
}

void post_progress(protocol::Progress progress) {
  if (progress.state != LoopState::running) flush_standard_streams();
  Outbox* outbox = g_outbox;
  if (outbox) outbox->post(std::move(progress));
}

void show_in_full() { g_full_cell = run_state().cell(); }
bool shows_in_full() { return g_full_cell == run_state().cell(); }

}  // namespace lockstep::worker
