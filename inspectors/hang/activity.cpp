#include "inspectors/hang/activity.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::inspect {
namespace {

struct Sign {
  Activity activity;
  std::string_view function;  // the complete name without arguments
};

// The functions of the C library in which threads wait.
constexpr Sign kSigns[] = {
    {Activity::lock, "pthread_mutex_lock"},
    {Activity::lock, "pthread_mutex_timedlock"},
    {Activity::lock, "pthread_mutex_clocklock"},
    {Activity::lock, "pthread_rwlock_rdlock"},
    {Activity::lock, "pthread_rwlock_wrlock"},
    {Activity::lock, "sem_wait"},
    {Activity::lock, "flock"},
    {Activity::lock, "lockf"},
    {Activity::condition, "pthread_cond_wait"},
    {Activity::condition, "pthread_cond_timedwait"},
    {Activity::condition, "pthread_cond_clockwait"},
    {Activity::condition, "pthread_join"},
    {Activity::condition, "pthread_barrier_wait"},
    {Activity::condition, "std::condition_variable::wait"},
    {Activity::condition, "std::thread::join"},
    {Activity::condition, "std::__atomic_futex_unsigned_base::_M_futex_wait_until"},
    {Activity::sleeping, "nanosleep"},
    {Activity::sleeping, "clock_nanosleep"},
    {Activity::sleeping, "pause"},
    {Activity::sleeping, "sigsuspend"},
    {Activity::sleeping, "sigwait"},
    {Activity::reading, "read"},
    {Activity::reading, "readv"},
    {Activity::reading, "pread64"},
    {Activity::reading, "preadv64"},
    {Activity::reading, "open64"},
    {Activity::reading, "open"},
    {Activity::reading, "openat64"},
    {Activity::reading, "fread"},
    {Activity::reading, "getc"},
    {Activity::reading, "getline"},
    {Activity::polling, "recv"},
    {Activity::polling, "recvfrom"},
    {Activity::polling, "recvmsg"},
    {Activity::polling, "send"},
    {Activity::polling, "sendmsg"},
    {Activity::polling, "write"},
    {Activity::polling, "accept"},
    {Activity::polling, "accept4"},
    {Activity::polling, "connect"},
    {Activity::polling, "poll"},
    {Activity::polling, "ppoll"},
    {Activity::polling, "select"},
    {Activity::polling, "pselect"},
    {Activity::polling, "epoll_wait"},
    {Activity::polling, "epoll_pwait"},
    {Activity::child, "wait4"},
    {Activity::child, "waitpid"},
    {Activity::child, "waitid"},
    // Of CUDA's runtime and driver, which poll or sleep as they like.
    {Activity::device, "cudaStreamSynchronize"},
    {Activity::device, "cudaDeviceSynchronize"},
    {Activity::device, "cudaEventSynchronize"},
    {Activity::device, "cudaMemcpy"},
    {Activity::device, "cudaMemcpyAsync"},  // to memory that is not pinned
    {Activity::device, "cuStreamSynchronize"},
    {Activity::device, "cuEventSynchronize"},
    {Activity::device, "cuCtxSynchronize"},
    {Activity::device, "cuMemcpyDtoH_v2"},
    {Activity::device, "cuMemcpyDtoHAsync_v2"},
};

/// The name without arguments, version, and the leading underscores of the C library's internal names.
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

/// The ways of LibTorch to wait for a device, whatever lies below them.
bool is_device_wait(std::string_view name) {
  return any_of_parts(
      name, {"::synchronizeStream", "::synchronizeEvent", "::synchronizeDevice", "c10::Event::synchronize",
             "c10::Stream::synchronize", "stream_synchronize", "::device_synchronize", "c10::cuda::memcpy_and_sync"});
}

/// The wait of the Reducer for its collectives; cells use futures, too.
bool is_future(std::string_view name) { return any_of_parts(name, {"c10::ivalue::Future::wait"}); }

bool is_data_loader(std::string_view name) {
  return any_of_parts(name,
                      {"torch::data::DataLoader", "torch::data::StatelessDataLoader", "torch::data::StatefulDataLoader",
                       "torch::data::detail::DataShuttle", "torch::data::detail::Queue", "torch::data::Iterator"});
}

}  // namespace

Activity activity_of(const std::vector<StackFrame>& frames, bool asleep, bool held) {
  Activity waits = asleep ? Activity::sleeping : Activity::unknown;
  bool collective = false, loader = false, users = false, device = false;
  for (const StackFrame& frame : frames) {
    loader = loader || is_data_loader(frame.function);
    users = users || frame.cell > 0;
    if (users) continue;  // what called the user's code (of a hook) does not show what that waits for
    collective = collective || is_collective(frame.function) || is_future(frame.function);
    device = device || is_device_wait(frame.function);
    if (waits != Activity::unknown) continue;
    const std::string_view name = bare(frame.function);
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const Sign& each) { return each.function == name; });
    if (sign != std::end(kSigns)) waits = sign->activity;
  }
  if (frames.empty() && !asleep) return Activity::unknown;
  // How a device's back end waits (a lock, a condition, polling) does not matter.
  if (device) waits = Activity::device;
  const bool waiting = held || waits != Activity::unknown;
  if (waiting && collective) return Activity::collective;
  if (waiting && loader) return Activity::loading_data;
  if (waits != Activity::unknown) return waits;
  return held ? Activity::blocked : Activity::computing;
}

bool is_at_store(const std::vector<StackFrame>& frames) {
  return std::ranges::any_of(frames, [](const StackFrame& frame) { return is_store(frame.function); });
}

const char* activity_words(Activity activity) {
  switch (activity) {
    case Activity::unknown:
      return "does something unknown";
    case Activity::idle:
      return "is idle";
    case Activity::computing:
      return "computes";
    case Activity::collective:
      return "is in a collective";
    case Activity::sleeping:
      return "sleeps";
    case Activity::lock:
      return "waits for a lock";
    case Activity::condition:
      return "waits for another thread";
    case Activity::loading_data:
      return "waits for its data loader";
    case Activity::reading:
      return "reads";
    case Activity::polling:
      return "waits for a connection";
    case Activity::child:
      return "waits for another process";
    case Activity::blocked:
      return "is blocked in the kernel";
    case Activity::device:
      return "waits for its device";
  }
  return "";
}

FindingKind kind_of_activity(Activity activity) {
  constexpr std::array kKinds = {FindingKind::unknown,    FindingKind::idle,         FindingKind::computing,
                                 FindingKind::collective, FindingKind::sleeping,     FindingKind::lock,
                                 FindingKind::condition,  FindingKind::loading_data, FindingKind::reading,
                                 FindingKind::polling,    FindingKind::child,        FindingKind::blocked,
                                 FindingKind::device};
  static_assert(kKinds.size() == static_cast<size_t>(Activity::device) + 1);
  return kKinds[static_cast<size_t>(activity)];
}

const char* activity_name(Activity activity) { return to_string(kind_of_activity(activity)).data(); }

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
