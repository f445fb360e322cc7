// OpenMP in cells, on the runtime that LibTorch has loaded: one pool of threads for both, and omp_set_num_threads means
// the same to both.
//
// Clang compiles OpenMP into calls of LLVM's runtime (__kmpc_…), LibTorch comes with GNU's (GOMP_…), and two runtimes
// in one process do not know of each other's threads. So the calls that Clang makes are defined here in terms of GNU's.
// LLVM's runtime, which has GNU's calls as well, could stand for both in a worker, where it can be loaded first; in a
// rank of a Python job, which runs cells too, torch has loaded GNU's.
// Parameters are those of openmp/runtime/src/kmp.h of LLVM 19 and of libgomp_g.h of GCC 12. Not here, so that a cell
// that needs them is refused when it is loaded: ordered regions, doacross loops, teams, offloading, and thread-private
// variables of class type.
#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace {

/// A function of LibTorch's OpenMP runtime, looked up at its first use: the worker is not linked with it.
template <typename Function>
class Runtime {
 public:
  constexpr explicit Runtime(const char* name) : name_(name) {}
  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    Function* function = function_.load(std::memory_order_acquire);
    if (!function) {
      function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name_));
      if (!function) std::abort();  // LibTorch needs it, so it is there
      function_.store(function, std::memory_order_release);
    }
    return function(arguments...);
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

Runtime<int()> thread_num("omp_get_thread_num"), num_threads("omp_get_num_threads");
Runtime<void(void (*)(void*), void*, unsigned, unsigned)> parallel("GOMP_parallel");
Runtime<void()> barrier("GOMP_barrier"), atomic_start("GOMP_atomic_start"), atomic_end("GOMP_atomic_end");
Runtime<void(void**)> critical_start("GOMP_critical_name_start"), critical_end("GOMP_critical_name_end");
Runtime<bool()> single_start("GOMP_single_start");
Runtime<void()> loop_end("GOMP_loop_end_nowait");
Runtime<void()> taskwait("GOMP_taskwait"), taskgroup_start("GOMP_taskgroup_start"), taskgroup_end("GOMP_taskgroup_end");
Runtime<void(void (*)(void*), void*, void (*)(void*, void*), long, long, bool, unsigned, void**, int, void*)> task(
    "GOMP_task");

using Turns = unsigned long long;
using Start = bool(bool, Turns, Turns, Turns, Turns, Turns*, Turns*);
using Next = bool(Turns*, Turns*);
Runtime<Start> dynamic_start("GOMP_loop_ull_dynamic_start"), guided_start("GOMP_loop_ull_guided_start");
Runtime<bool(bool, Turns, Turns, Turns, Turns*, Turns*)> runtime_start("GOMP_loop_ull_runtime_start");
Runtime<Next> dynamic_next("GOMP_loop_ull_dynamic_next"), guided_next("GOMP_loop_ull_guided_next");
Runtime<Next> runtime_next("GOMP_loop_ull_runtime_next");

// Regions with `if(false)` inside of a team: this thread is a team of its own.
thread_local int t_serialized = 0;
thread_local unsigned t_wanted_threads = 0;  // of the next region; 0: the default

int team_size() { return t_serialized > 0 ? 1 : num_threads(); }
int team_rank() { return t_serialized > 0 ? 0 : thread_num(); }

// ---- Parallel regions --------------------------------------------------------------------------------------------

using Microtask = void (*)(int32_t* global, int32_t* bound, ...);
constexpr int kMostArguments = 128;  // variables that a region captures

template <size_t... I>
void call(Microtask function, int32_t* id, void** arguments, std::index_sequence<I...>) {
  int32_t bound = *id;
  function(id, &bound, arguments[I]...);
}

template <size_t Count>
void call_with(Microtask function, int32_t* id, void** arguments, int count) {
  if constexpr (Count <= kMostArguments) {
    if (count == Count) return call(function, id, arguments, std::make_index_sequence<Count>());
    call_with<Count + 1>(function, id, arguments, count);
  } else {
    std::abort();  // __kmpc_fork_call looks at the count
  }
}

struct Region {
  Microtask function;
  int count;
  void* arguments[kMostArguments];
};

void run_region(void* data) {
  auto* region = static_cast<Region*>(data);
  const int serialized = std::exchange(t_serialized, 0);  // a team of its own begins here
  int32_t id = thread_num();
  call_with<0>(region->function, &id, region->arguments, region->count);
  t_serialized = serialized;
}

// ---- Loops -------------------------------------------------------------------------------------------------------

enum Schedule : int32_t { kStaticChunked = 33, kStatic = 34, kDynamic = 35, kGuided = 36, kRuntime = 37 };
constexpr int32_t kModifiers = (1 << 29) | (1 << 30);  // monotonic, nonmonotonic

/// Returns how many times a loop from `lower` to `upper` (inclusive) in steps of `step` runs.
template <typename T>
uint64_t trips(T lower, T upper, std::make_signed_t<T> step) {
  if (step > 0)
    return upper < lower
               ? 0
               : (static_cast<uint64_t>(upper) - static_cast<uint64_t>(lower)) / static_cast<uint64_t>(step) + 1;
  const uint64_t down = 0 - static_cast<uint64_t>(static_cast<int64_t>(step));
  return lower < upper ? 0 : (static_cast<uint64_t>(lower) - static_cast<uint64_t>(upper)) / down + 1;
}

/// The value in turn `turn` of a loop, computed as unsigned arithmetic does: it wraps.
template <typename T>
T value_in(uint64_t turn, T first, std::make_signed_t<T> step) {
  return static_cast<T>(static_cast<uint64_t>(first) + turn * static_cast<uint64_t>(static_cast<int64_t>(step)));
}

/// The part of this thread: equal shares, or chunks in turn. `lower` and `upper` come with the whole loop.
template <typename T>
void share(int32_t schedule, int32_t* last, T* lower, T* upper, std::make_signed_t<T>* stride,
           std::make_signed_t<T> step, std::make_signed_t<T> chunk) {
  using Signed = std::make_signed_t<T>;
  const uint64_t count = trips(*lower, *upper, step);
  const auto threads = static_cast<uint64_t>(team_size()), rank = static_cast<uint64_t>(team_rank());
  *last = 0;
  if (count == 0) {
    *stride = step;
    return;
  }
  uint64_t begin, mine;
  if ((schedule & ~kModifiers) == kStaticChunked) {
    mine = chunk < 1 ? 1 : static_cast<uint64_t>(chunk);
    begin = rank * mine;
    *stride = value_in<Signed>(mine * threads, 0, step);
    *last = rank == (count - 1) / mine % threads;
  } else {
    const uint64_t each = count / threads, more = count % threads;
    begin = rank * each + (rank < more ? rank : more);
    mine = each + (rank < more ? 1 : 0);
    *stride = static_cast<Signed>(count);
    if (mine == 0) {  // nothing: bounds that exclude each other
      *lower = step > 0 ? T(1) : T(0);
      *upper = step > 0 ? T(0) : T(1);
      return;
    }
    *last = begin + mine == count;
  }
  const T first = *lower;
  *lower = value_in(begin, first, step);
  *upper = value_in(begin + mine - 1, first, step);
}

/// A loop whose chunks are handed out while it runs. One at a time for each thread. GNU's runtime hands out turns,
/// counted from 0.
struct Dispatch {
  int32_t schedule = 0;
  bool started = false, alone = false;
  uint64_t turns = 0, lower = 0;  // lower: sign-extended
  int64_t step = 0, chunk = 0;
};
thread_local Dispatch t_dispatch;

template <typename T>
void begin_dispatch(int32_t schedule, T lower, T upper, std::make_signed_t<T> step, std::make_signed_t<T> chunk) {
  t_dispatch = {.schedule = schedule & ~kModifiers,
                .alone = team_size() == 1,
                .turns = trips(lower, upper, step),
                .lower = static_cast<uint64_t>(lower),
                .step = step,
                .chunk = chunk < 1 ? 1 : chunk};
}

/// The next chunk: from turn `begin` to the one before `end`.
bool next_turns(Dispatch& loop, Turns& begin, Turns& end) {
  const bool first = !std::exchange(loop.started, true);
  if (loop.alone) {
    end = loop.turns;
    return first && end > 0;
  }
  const Turns turns = loop.turns, chunk = static_cast<Turns>(loop.chunk);
  if (loop.schedule == kGuided)
    return first ? guided_start(true, 0, turns, 1, chunk, &begin, &end) : guided_next(&begin, &end);
  if (loop.schedule == kRuntime)
    return first ? runtime_start(true, 0, turns, 1, &begin, &end) : runtime_next(&begin, &end);
  return first ? dynamic_start(true, 0, turns, 1, chunk, &begin, &end) : dynamic_next(&begin, &end);
}

template <typename T>
int32_t next_dispatch(int32_t* last, T* lower, T* upper, std::make_signed_t<T>* stride) {
  Dispatch& loop = t_dispatch;
  Turns begin = 0, end = 0;
  if (!next_turns(loop, begin, end)) {
    if (!loop.alone) loop_end();
    return 0;
  }
  const auto first = static_cast<T>(loop.lower);
  const auto step = static_cast<std::make_signed_t<T>>(loop.step);
  *stride = step;
  *last = end == loop.turns;
  *lower = value_in(begin, first, step);
  *upper = value_in(end - 1, first, step);
  return 1;
}

// ---- Tasks -------------------------------------------------------------------------------------------------------

/// The beginning of what Clang makes of a task; its private variables follow.
struct Task {
  void* shareds;
  int32_t (*routine)(int32_t, Task*);
  int32_t part_id;
  void* data[2];
};

void run_task(void* data) {
  Task* one = *static_cast<Task**>(data);
  one->routine(thread_num(), one);
  std::free(one);
}

/// A thread's own copy of a thread-private variable; the first thread has the variable itself.
void* own_copy(void* variable, size_t size) {
  if (thread_num() == 0) return variable;
  thread_local std::unordered_map<void*, std::unique_ptr<char[]>> copies;
  auto& copy = copies[variable];
  if (!copy) {
    copy = std::make_unique<char[]>(size);
    std::memcpy(copy.get(), variable, size);
  }
  return copy.get();
}

void* g_copied = nullptr;  // of copyprivate: what the thread of the single region has

}  // namespace

extern "C" {

int32_t __kmpc_global_thread_num(void*) { return thread_num(); }
void __kmpc_push_num_threads(void*, int32_t, int32_t threads) {
  t_wanted_threads = threads > 0 ? static_cast<unsigned>(threads) : 0;
}
void __kmpc_push_proc_bind(void*, int32_t, int32_t) {}

void __kmpc_fork_call(void*, int32_t count, Microtask function, ...) {
  Region region{.function = function, .count = count, .arguments = {}};
  if (count > kMostArguments) std::abort();
  va_list arguments;
  va_start(arguments, function);
  for (int32_t i = 0; i < count; ++i) region.arguments[i] = va_arg(arguments, void*);
  va_end(arguments);
  parallel(run_region, &region, std::exchange(t_wanted_threads, 0u), 0u);
}

void __kmpc_serialized_parallel(void*, int32_t) {
  t_wanted_threads = 0;
  ++t_serialized;
}
void __kmpc_end_serialized_parallel(void*, int32_t) { --t_serialized; }

// The calls of loops exist for four types of the variable.
#define LOCKSTEP_LOOP(suffix, T, S)                                                                                    \
  void __kmpc_for_static_init_##suffix(void*, int32_t, int32_t schedule, int32_t* last, T* lower, T* upper, S* stride, \
                                       S step, S chunk) {                                                              \
    share<T>(schedule, last, lower, upper, stride, step, chunk);                                                       \
  }                                                                                                                    \
  void __kmpc_dispatch_init_##suffix(void*, int32_t, int32_t schedule, T lower, T upper, S step, S chunk) {            \
    begin_dispatch<T>(schedule, lower, upper, step, chunk);                                                            \
  }                                                                                                                    \
  int32_t __kmpc_dispatch_next_##suffix(void*, int32_t, int32_t* last, T* lower, T* upper, S* stride) {                \
    return next_dispatch<T>(last, lower, upper, stride);                                                               \
  }                                                                                                                    \
  void __kmpc_dispatch_fini_##suffix(void*, int32_t) {}
LOCKSTEP_LOOP(4, int32_t, int32_t)
LOCKSTEP_LOOP(4u, uint32_t, int32_t)
LOCKSTEP_LOOP(8, int64_t, int64_t)
LOCKSTEP_LOOP(8u, uint64_t, int64_t)
#undef LOCKSTEP_LOOP
void __kmpc_for_static_fini(void*, int32_t) {}
void __kmpc_dispatch_deinit(void*, int32_t) {}

void __kmpc_barrier(void*, int32_t) {
  if (t_serialized == 0) barrier();
}
int32_t __kmpc_cancel_barrier(void*, int32_t) {
  if (t_serialized == 0) barrier();
  return 0;
}
int32_t __kmpc_cancel(void*, int32_t, int32_t) { return 0; }  // as without OMP_CANCELLATION
int32_t __kmpc_cancellationpoint(void*, int32_t, int32_t) { return 0; }
void __kmpc_flush(void*) { std::atomic_thread_fence(std::memory_order_seq_cst); }

// A name of a critical region is 32 zero bytes, of which GNU's runtime needs the first eight.
void __kmpc_critical(void*, int32_t, void* name) { critical_start(static_cast<void**>(name)); }
void __kmpc_critical_with_hint(void*, int32_t, void* name, uint32_t) { critical_start(static_cast<void**>(name)); }
void __kmpc_end_critical(void*, int32_t, void* name) { critical_end(static_cast<void**>(name)); }
void __kmpc_atomic_start() { atomic_start(); }
void __kmpc_atomic_end() { atomic_end(); }

// Its types need no constructor; for others clang calls __kmpc_threadprivate_register, which is not here.
void* __kmpc_threadprivate_cached(void*, int32_t, void* variable, size_t size, void***) {
  return own_copy(variable, size);
}

// Each thread in turn adds its part to the result.
int32_t __kmpc_reduce(void*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), void* name) {
  critical_start(static_cast<void**>(name));
  return 1;
}
void __kmpc_end_reduce(void* place, int32_t id, void* name) {
  critical_end(static_cast<void**>(name));
  __kmpc_barrier(place, id);
}
int32_t __kmpc_reduce_nowait(void*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), void* name) {
  critical_start(static_cast<void**>(name));
  return 1;
}
void __kmpc_end_reduce_nowait(void*, int32_t, void* name) { critical_end(static_cast<void**>(name)); }

int32_t __kmpc_single(void*, int32_t) { return t_serialized > 0 || single_start(); }
void __kmpc_end_single(void*, int32_t) {}
void __kmpc_copyprivate(void* place, int32_t id, size_t, void* own, void (*copy)(void*, void*), int32_t has_it) {
  if (has_it) g_copied = own;
  __kmpc_barrier(place, id);
  if (!has_it) copy(own, g_copied);
  __kmpc_barrier(place, id);
}
int32_t __kmpc_master(void*, int32_t) { return team_rank() == 0; }
void __kmpc_end_master(void*, int32_t) {}
int32_t __kmpc_masked(void*, int32_t, int32_t filter) { return team_rank() == filter; }
void __kmpc_end_masked(void*, int32_t) {}

Task* __kmpc_omp_task_alloc(void*, int32_t, int32_t, size_t size, size_t shareds_size,
                            int32_t (*routine)(int32_t, Task*)) {
  const size_t rounded = (size + 15) / 16 * 16;
  auto* one = static_cast<Task*>(std::calloc(1, rounded + shareds_size));
  if (!one) std::abort();
  one->shareds = shareds_size > 0 ? reinterpret_cast<char*>(one) + rounded : nullptr;
  one->routine = routine;
  return one;
}
int32_t __kmpc_omp_task(void*, int32_t, Task* one) {
  task(run_task, static_cast<void*>(&one), static_cast<void (*)(void*, void*)>(nullptr),
       static_cast<long>(sizeof(Task*)), static_cast<long>(alignof(Task*)), t_serialized == 0, 0u,
       static_cast<void**>(nullptr), 0, static_cast<void*>(nullptr));
  return 0;
}
// What a task depends on was made before it by the same thread: those are waited for, and it runs at once.
int32_t __kmpc_omp_task_with_deps(void*, int32_t, Task* one, int32_t, void*, int32_t, void*) {
  taskwait();
  run_task(&one);
  return 0;
}
void __kmpc_omp_wait_deps(void*, int32_t, int32_t, void*, int32_t, void*) { taskwait(); }
void __kmpc_omp_taskwait_deps_51(void*, int32_t, int32_t, void*, int32_t, void*, int32_t) { taskwait(); }
void __kmpc_omp_task_begin_if0(void*, int32_t, Task*) {}
void __kmpc_omp_task_complete_if0(void*, int32_t, Task* one) { std::free(one); }
int32_t __kmpc_omp_taskwait(void*, int32_t) {
  taskwait();
  return 0;
}
int32_t __kmpc_omp_taskyield(void*, int32_t, int32_t) { return 0; }
void __kmpc_taskgroup(void*, int32_t) { taskgroup_start(); }
void __kmpc_end_taskgroup(void*, int32_t) { taskgroup_end(); }
// One task for the whole loop, whose bounds it holds: how many there are is the runtime's choice.
void __kmpc_taskloop(void*, int32_t, Task* one, int32_t, uint64_t*, uint64_t*, int64_t, int32_t, int32_t, uint64_t,
                     void*) {
  run_task(&one);
}
}
