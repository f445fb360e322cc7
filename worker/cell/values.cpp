#include "worker/cell/values.h"

#include <atomic>

#include "worker/process/outbox.h"
#include "worker/process/output_pipes.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {
std::atomic<Outbox*> g_outbox{nullptr};
}

void send_values_to(Outbox& outbox) { g_outbox = &outbox; }

void post_value(std::string text, nlohmann::json data) {
  flush_standard_streams();
  Outbox* outbox = g_outbox;
  if (outbox) outbox->post(protocol::Value{run_state().cell(), std::move(text), std::move(data)});
}

}  // namespace lockstep::worker
