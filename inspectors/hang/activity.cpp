#include "inspectors/hang/activity.h"

#include <algorithm>
#include <string_view>

namespace lockstep::inspect {
namespace {

struct Sign {
  FindingKind activity;
  std::string_view function;  // the complete name without arguments
};

// In these functions of the C library threads wait.
constexpr Sign kSigns[] = {
    {FindingKind::lock, "pthread_mutex_lock"},
    {FindingKind::lock, "pthread_mutex_timedlock"},
    {FindingKind::lock, "pthread_mutex_clocklock"},
    {FindingKind::lock, "pthread_rwlock_rdlock"},
    {FindingKind::lock, "pthread_rwlock_wrlock"},
    {FindingKind::lock, "pthread_rwlock_timedrdlock"},
    {FindingKind::lock, "pthread_rwlock_clockrdlock"},
    {FindingKind::lock, "pthread_rwlock_timedwrlock"},
    {FindingKind::lock, "pthread_rwlock_clockwrlock"},
    {FindingKind::lock, "sem_wait"},
    {FindingKind::lock, "sem_timedwait"},
    {FindingKind::lock, "sem_clockwait"},
    {FindingKind::lock, "flock"},
    {FindingKind::lock, "lockf"},
    {FindingKind::condition, "pthread_cond_wait"},
    {FindingKind::condition, "pthread_cond_timedwait"},
    {FindingKind::condition, "pthread_cond_clockwait"},
    {FindingKind::condition, "pthread_join"},
    {FindingKind::condition, "pthread_timedjoin_np"},
    {FindingKind::condition, "pthread_clockjoin_np"},
    {FindingKind::condition, "pthread_barrier_wait"},
    {FindingKind::condition, "std::condition_variable::wait"},
    {FindingKind::condition, "std::thread::join"},
    {FindingKind::condition, "std::__atomic_futex_unsigned_base::_M_futex_wait_until"},
    {FindingKind::sleeping, "nanosleep"},
    {FindingKind::sleeping, "clock_nanosleep"},
    {FindingKind::sleeping, "pause"},
    {FindingKind::sleeping, "sigsuspend"},
    {FindingKind::sleeping, "sigwait"},
    {FindingKind::reading, "read"},
    {FindingKind::reading, "readv"},
    {FindingKind::reading, "pread64"},
    {FindingKind::reading, "preadv64"},
    {FindingKind::reading, "open64"},
    {FindingKind::reading, "open"},
    {FindingKind::reading, "openat64"},
    {FindingKind::reading, "fread"},
    {FindingKind::reading, "getc"},
    {FindingKind::reading, "getline"},
    {FindingKind::polling, "recv"},
    {FindingKind::polling, "recvfrom"},
    {FindingKind::polling, "recvmsg"},
    {FindingKind::polling, "send"},
    {FindingKind::polling, "sendmsg"},
    {FindingKind::polling, "write"},
    {FindingKind::polling, "accept"},
    {FindingKind::polling, "accept4"},
    {FindingKind::polling, "connect"},
    {FindingKind::polling, "poll"},
    {FindingKind::polling, "ppoll"},
    {FindingKind::polling, "select"},
    {FindingKind::polling, "pselect"},
    {FindingKind::polling, "epoll_wait"},
    {FindingKind::polling, "epoll_pwait"},
    {FindingKind::child, "wait4"},
    {FindingKind::child, "waitpid"},
    {FindingKind::child, "waitid"},
    // The functions of CUDA's runtime and driver poll or sleep as they like.
    {FindingKind::device, "cudaStreamSynchronize"},
    {FindingKind::device, "cudaDeviceSynchronize"},
    {FindingKind::device, "cudaEventSynchronize"},
    {FindingKind::device, "cudaMemcpy"},
    {FindingKind::device, "cudaMemcpyAsync"},  // to memory that is not pinned
    {FindingKind::device, "cuStreamSynchronize"},
    {FindingKind::device, "cuEventSynchronize"},
    {FindingKind::device, "cuCtxSynchronize"},
    {FindingKind::device, "cuMemcpyDtoH_v2"},
    {FindingKind::device, "cuMemcpyDtoHAsync_v2"},
};

/// Returns the name without arguments, version, and the leading underscores of the C library's internal names.
std::string_view bare(std::string_view name) {
  name = name.substr(0, name.find('('));
  if (!name.starts_with("__atomic") && name.find("::") == std::string_view::npos)
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return name.substr(0, name.find('@'));
}

bool any_of_parts(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// A wait for a key is no collective; a collective may have one.
bool is_store(std::string_view name) {
  return any_of_parts(name, {"c10d::detail::", "c10d::tcputil::"}) ||
         (any_of_parts(name, {"c10d::"}) && any_of_parts(name, {"Store"}) && !any_of_parts(name, {"ProcessGroup"}));
}

bool is_collective(std::string_view name) {
  return any_of_parts(name, {"lockstep::dist::", "c10d::", "gloo::"}) && !is_store(name);
}

/// Whether LibTorch waits for a device this way, whatever lies below it.
bool is_device_wait(std::string_view name) {
  return any_of_parts(
      name, {"::synchronizeStream", "::synchronizeEvent", "::synchronizeDevice", "c10::Event::synchronize",
             "c10::Stream::synchronize", "stream_synchronize", "::device_synchronize", "c10::cuda::memcpy_and_sync"});
}

/// Whether it is the wait of the Reducer for its collectives; cells use futures, too.
bool is_future(std::string_view name) { return any_of_parts(name, {"c10::ivalue::Future::wait"}); }

bool is_data_loader(std::string_view name) {
  return any_of_parts(name,
                      {"torch::data::DataLoader", "torch::data::StatelessDataLoader", "torch::data::StatefulDataLoader",
                       "torch::data::detail::DataShuttle", "torch::data::detail::Queue", "torch::data::Iterator"});
}

}  // namespace

FindingKind activity_of(const std::vector<StackFrame>& frames, bool asleep, bool held) {
  FindingKind waits = asleep ? FindingKind::sleeping : FindingKind::unknown;
  bool collective = false, loader = false, users = false, device = false;
  for (const StackFrame& frame : frames) {
    loader = loader || is_data_loader(frame.function);
    users = users || frame.cell > 0;
    if (users) continue;  // what called the user's code (of a hook) does not show what that waits for
    collective = collective || is_collective(frame.function) || is_future(frame.function);
    device = device || is_device_wait(frame.function);
    if (waits != FindingKind::unknown) continue;
    const std::string_view name = bare(frame.function);
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const Sign& each) { return each.function == name; });
    if (sign != std::end(kSigns)) waits = sign->activity;
  }
  if (frames.empty() && !asleep) return FindingKind::unknown;
  // How a device's back end waits (a lock, a condition, polling) does not matter.
  if (device) waits = FindingKind::device;
  const bool waiting = held || waits != FindingKind::unknown;
  if (waiting && collective) return FindingKind::collective;
  if (waiting && loader) return FindingKind::loading_data;
  if (waits != FindingKind::unknown) return waits;
  return held ? FindingKind::blocked : FindingKind::computing;
}

bool is_at_store(const std::vector<StackFrame>& frames) {
  return std::ranges::any_of(frames, [](const StackFrame& frame) { return is_store(frame.function); });
}

const char* activity_words(FindingKind activity) {
  switch (activity) {
    case FindingKind::unknown:
      return "does something unknown";
    case FindingKind::idle:
      return "is idle";
    case FindingKind::computing:
      return "computes";
    case FindingKind::collective:
      return "is in a collective";
    case FindingKind::sleeping:
      return "sleeps";
    case FindingKind::lock:
      return "waits for a lock";
    case FindingKind::condition:
      return "waits for another thread";
    case FindingKind::loading_data:
      return "waits for its data loader";
    case FindingKind::reading:
      return "reads";
    case FindingKind::polling:
      return "waits for a connection";
    case FindingKind::child:
      return "waits for another process";
    case FindingKind::blocked:
      return "is blocked in the kernel";
    case FindingKind::device:
      return "waits for its device";
    default:
      return "";
  }
}

std::string code_line(const std::vector<StackFrame>& frames) {
  for (const StackFrame& frame : frames)
    if (frame.cell > 0)
      return "cell " + std::to_string(frame.cell) + (frame.line > 0 ? ", line " + std::to_string(frame.line) : "");
  return {};
}

std::string code_place(const std::vector<StackFrame>& frames) {
  for (const StackFrame& frame : frames)
    if (frame.cell > 0) return (frame.function.empty() ? "" : frame.function + " at ") + code_line(frames);
  return {};
}

}  // namespace lockstep::inspect
