// The functions that the process which runs cells provides for them. There are two such processes: the worker of a
// session (worker/host.cpp), and a rank of a Python job (python/cells/host.cpp). All else about cells is the same code
// in both (worker/cell/). The process also defines configuration() and the functions of throw_trace.h.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/worker_messages.h"

namespace lockstep::worker {

/// Opens the shared object of a cell, or the prelude. Its symbols, and all that its code refers to, are found from
/// here on by objects that are opened later. Returns nullptr where dlerror() says why not. Throws Error where a file that
/// this takes can't be written.
void* open_object(const std::string& path);
/// Takes an opened object out of the process again: no object that is opened later finds its symbols.
void close_object(void* handle, const std::string& path);

/// The object of a cell that has been opened.
struct OpenedCell {
  const void* entry = nullptr;  // a symbol of its own; nullptr where it has none of that name
  uintptr_t base = 0;  // its addresses are relative to this
  uintptr_t begin = 0, end = 0;  // its memory
  std::function<void()> close;  // as close_object() does
};
/// Opens the object of a cell as open_object() does, without the dynamic loader. `bytes` are those of the file. Returns
/// nothing where open_object() has to be called.
std::optional<OpenedCell> open_without_dlopen(const std::string& path, std::string_view bytes, std::string_view entry);

/// Calls a step of a cell, and passes its exceptions on.
void call_step(void (*step)());

/// Sends a value that a cell shows, from any thread. Output that was written before comes before it.
void send_to_session(protocol::Value value);
/// Sends progress, which replaces what has not been sent yet of the same loop.
void send_to_session(protocol::Progress progress);

/// Keeps what on_preempt() registers.
void keep_for_preemption(std::function<void()> save);

/// Ends the rank, which can't go on: a cell has ended the thread that runs cells (pthread_exit).
[[noreturn]] void end_without_run_thread();

}  // namespace lockstep::worker
