#include "worker/host.h"

#include <dlfcn.h>

#include <atomic>
#include <utility>

#include "worker/interpose/exits.h"
#include "worker/process/host.h"
#include "worker/process/outbox.h"

namespace lockstep::worker {
namespace {
std::atomic<Outbox*> g_outbox{nullptr};
}  // namespace

void send_values_to(Outbox& outbox) { g_outbox = &outbox; }

void* open_object(const std::string& path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); }

void close_object(void* handle, const std::string&) { ::dlclose(handle); }

void call_step(void (*step)()) { step(); }

void send_to_session(protocol::Value value) {
  if (Outbox* outbox = g_outbox) outbox->post(std::move(value));
}

void send_to_session(protocol::Progress progress) {
  if (Outbox* outbox = g_outbox) outbox->post(std::move(progress));
}

void end_without_run_thread() {
  report_exit("pthread_exit", 0);
  exit_quietly(0);
}

}  // namespace lockstep::worker
