#include "worker/host.h"

#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <utility>

#include "worker/interpose/exits.h"
#include "worker/loader/object_loader.h"
#include "worker/process/host.h"
#include "worker/process/outbox.h"

namespace lockstep::worker {
namespace {
std::atomic<Outbox*> g_outbox{nullptr};
std::atomic<bool> g_has_preemption_function{false};

/// Used on the run thread. What it refers to may be gone when a destructor of it would run.
std::function<void()>& preemption_function() {
  static auto* const function = new std::function<void()>;
  return *function;
}
}  // namespace

void send_values_to(Outbox& outbox) { g_outbox = &outbox; }

void* open_object(const std::string& path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); }

void close_object(void* handle, const std::string&) { ::dlclose(handle); }

std::optional<OpenedCell> open_without_dlopen(const std::string& path, std::string_view bytes, std::string_view entry) {
  // Never destroyed: cells lie in its memory. Objects are loaded on the run thread only.
  static auto* const loader = new ObjectLoader(path.substr(0, path.rfind('/')));
  const auto loaded = loader->load(path, bytes, entry);
  if (!loaded) return std::nullopt;
  return OpenedCell{.entry = loaded->entry,
                    .base = loaded->base,
                    .begin = loaded->base,
                    .end = loaded->base + loaded->size,
                    .close = [loaded] { loader->unload(*loaded); }};
}

void call_step(void (*step)()) { step(); }

void send_to_session(protocol::Value value) {
  if (Outbox* outbox = g_outbox) outbox->post(std::move(value));
}

void send_to_session(protocol::Progress progress) {
  if (Outbox* outbox = g_outbox) outbox->post(std::move(progress));
}

void keep_for_preemption(std::function<void()> save) {
  preemption_function() = std::move(save);
  g_has_preemption_function = preemption_function() != nullptr;
}

bool has_preemption_function() { return g_has_preemption_function; }

void run_preemption_function() {
  if (const std::function<void()> save = preemption_function()) save();  // a copy: it may register another one
}

void end_without_run_thread() {
  report_exit("pthread_exit", 0);
  exit_quietly(0);
}

}  // namespace lockstep::worker
