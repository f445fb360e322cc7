// %% [markdown]
// # OpenMP in cells
// Regions, loops, reductions and tasks run on the threads that LibTorch uses.

// %% one runtime for cells and LibTorch
#include <omp.h>
#define EXPECT(condition) \
  if (!(condition)) throw std::logic_error("not so: " #condition)
EXPECT(omp_get_max_threads() == at::get_num_threads());
torch::set_num_threads(3);
EXPECT(omp_get_max_threads() == 3);

// %% headers of Clang that have one of GCC beside them
#include <stdatomic.h>
atomic_int counted = 0;
EXPECT(atomic_fetch_add(&counted, 1) == 0);

// %% a region
std::atomic<int> seen{0};
#pragma omp parallel
{ seen += 1 + 100 * omp_get_thread_num(); }
EXPECT(seen == 303);

// %% a reduction
long sum_below(long n) {
  long sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (long i = 0; i < n; ++i) sum += i;
  return sum;
}
for (long n : {0, 1, 2, 3, 1000}) EXPECT(sum_below(n) == n * (n - 1) / 2);

// %% each turn of a loop once, whatever the schedule
using Hits = std::vector<int>;
template <typename T>
bool all_schedules(T begin, T end, T step, int chunk) {
  Hits up(300), down(300);
  for (T i = begin; i < end; i += step) up[i]++;
  for (T i = end; i > begin; i -= step) down[i]++;
  const auto is = [&](const Hits& expected, auto loop) {
    Hits hits(300);
    loop(hits);
    return hits == expected;
  };
  return is(up, [&](Hits& h) {
#pragma omp parallel for schedule(static)
           for (T i = begin; i < end; i += step) h[i]++;
         }) &&
         is(up, [&](Hits& h) {
#pragma omp parallel for schedule(static, chunk)
           for (T i = begin; i < end; i += step) h[i]++;
         }) &&
         is(up, [&](Hits& h) {
#pragma omp parallel for schedule(dynamic, chunk)
           for (T i = begin; i < end; i += step) h[i]++;
         }) &&
         is(up, [&](Hits& h) {
#pragma omp parallel for schedule(guided, chunk)
           for (T i = begin; i < end; i += step) h[i]++;
         }) &&
         is(up, [&](Hits& h) {
#pragma omp parallel for schedule(runtime)
           for (T i = begin; i < end; i += step) h[i]++;
         }) &&
         is(down, [&](Hits& h) {
#pragma omp parallel for schedule(static)
           for (T i = end; i > begin; i -= step) h[i]++;
         }) &&
         is(down, [&](Hits& h) {
#pragma omp parallel for schedule(static, chunk)
           for (T i = end; i > begin; i -= step) h[i]++;
         }) &&
         is(down, [&](Hits& h) {
#pragma omp parallel for schedule(dynamic, chunk)
           for (T i = end; i > begin; i -= step) h[i]++;
         });
}
EXPECT(all_schedules<int>(0, 250, 1, 7));
EXPECT(all_schedules<unsigned>(20, 250, 4, 1));
EXPECT(all_schedules<long>(10, 11, 3, 2));
EXPECT(all_schedules<uint64_t>(50, 299, 13, 5));
EXPECT(all_schedules<int>(7, 7, 1, 1));
EXPECT(all_schedules<int16_t>(0, 2, 1, 1));

// %% the last turn's value
int last_of(int n) {
  int last = -1;
#pragma omp parallel for lastprivate(last) schedule(dynamic, 3)
  for (int i = 0; i < n; ++i) last = i;
  int again = -1;
#pragma omp parallel for lastprivate(again) schedule(static, 3)
  for (int i = 0; i < n; ++i) again = i;
  int third = -1;
#pragma omp parallel for lastprivate(third)
  for (int i = 0; i < n; ++i) third = i;
  return last == again && again == third ? last : -2;
}
for (int n : {1, 2, 3, 10, 100}) EXPECT(last_of(n) == n - 1);

// %% what only one thread does, and what they do in turn
struct Counts {
  int critical = 0, single = 0, master = 0, sections = 0, copied = 0;
};
Counts count_all() {
  Counts c;
#pragma omp parallel
  {
#pragma omp critical
    ++c.critical;
#pragma omp barrier
#pragma omp single
    ++c.single;
#pragma omp master
    ++c.master;
    int x = 0;
#pragma omp single copyprivate(x)
    x = 7;
#pragma omp atomic
    c.copied += x;
#pragma omp sections
    {
#pragma omp section
      {
#pragma omp atomic
        c.sections += 1;
      }
#pragma omp section
      {
#pragma omp atomic
        c.sections += 10;
      }
    }
  }
  return c;
}
for (int i = 0; i < 20; ++i) {
  const Counts c = count_all();
  EXPECT(c.critical == 3 && c.single == 1 && c.master == 1 && c.sections == 11 && c.copied == 21);
}

// %% tasks
long fibonacci(int n) {
  if (n < 2) return n;
  long a, b;
#pragma omp task shared(a)
  a = fibonacci(n - 1);
#pragma omp task shared(b)
  b = fibonacci(n - 2);
#pragma omp taskwait
  return a + b;
}
long in_parallel(int n) {
  long result = 0;
#pragma omp parallel
#pragma omp single
  result = fibonacci(n);
  return result;
}
EXPECT(in_parallel(15) == 610);
long task_loop() {
  long sum = 0;
#pragma omp parallel
#pragma omp single
#pragma omp taskloop
  for (int i = 0; i < 100; ++i) {
#pragma omp atomic
    sum += i;
  }
  return sum;
}
EXPECT(task_loop() == 4950);

// %% regions that are not parallel, and regions in regions
long not_parallel(bool parallel) {
  long sum = 0;
#pragma omp parallel for if (parallel) reduction(+ : sum)
  for (int i = 0; i < 10; ++i) sum += i;
  return sum;
}
EXPECT(not_parallel(false) == 45 && not_parallel(true) == 45);
long nested() {
  long sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
  {
    sum += not_parallel(false);
    sum += not_parallel(true);
  }
  return sum;
}
EXPECT(nested() == 180);

// %% thread-private variables
int sum_of_mine() {
  static int mine = 5;
#pragma omp threadprivate(mine)
  int sum = 0;
#pragma omp parallel reduction(+ : sum)
  {
    mine += omp_get_thread_num();
    sum += mine;
  }
  return sum;
}
EXPECT(sum_of_mine() == 5 + 6 + 7);

// %% LibTorch's own loops in a cell
std::atomic<long> total{0};
at::parallel_for(0, 1000, 10, [&](int64_t begin, int64_t end) { total += end - begin; });
EXPECT(total == 1000);
EXPECT(torch::ones({100, 100}).mm(torch::ones({100, 100})).sum().item<double>() == 1e6);

// %% locks
omp_lock_t lock;
omp_init_lock(&lock);
int guarded = 0;
#pragma omp parallel
for (int i = 0; i < 1000; ++i) {
  omp_set_lock(&lock);
  ++guarded;
  omp_unset_lock(&lock);
}
EXPECT(guarded == 3000);

// %% what the runtime of cells does not have is refused, and the session goes on tags=["raises-exception"]
void ordered() {
#pragma omp parallel for ordered
  for (int i = 0; i < 4; ++i) {
#pragma omp ordered
    std::cout << i;
  }
}
ordered();

// %% structured bindings of cells and directives keep out of each other's way
auto [first, second] = std::pair(20, 22);
// %% a cell without a directive uses them, also after one that had some
EXPECT(first + second == 42);
EXPECT(sum_below(10) == 45);
// %% one with a directive says what to do instead tags=["raises-exception"]
long with_binding = 0;
#pragma omp parallel for reduction(+ : with_binding)
for (int i = 0; i < first; ++i) with_binding += i;
// %% a template with a directive, instantiated by a later cell
template <typename T>
T parallel_sum(const std::vector<T>& values) {
  T sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (size_t i = 0; i < values.size(); ++i) sum += values[i];
  return sum;
}
// %% without one of its own
EXPECT(parallel_sum(std::vector<double>(100, 0.5)) == 50);
#ifndef _OPENMP
#error "cells have OpenMP"
#endif

// %% the end
std::cout << "parallel\n";
