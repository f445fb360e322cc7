// <omp.h> of cells: the library routines of OpenMP 4.5 as LibTorch's runtime has them (libgomp, x86_64). GCC's own
// header can't be read by Clang, and Clang's describes the locks of another runtime.
#ifndef LOCKSTEP_OMP_H
#define LOCKSTEP_OMP_H

#ifdef __cplusplus
extern "C" {
#define LOCKSTEP_OMP_NOTHROW noexcept
#else
#define LOCKSTEP_OMP_NOTHROW
#endif

// Sizes and alignment of libgomp's omp_lock_t and omp_nest_lock_t on 64-bit Linux.
typedef struct {
  unsigned char state[4] __attribute__((aligned(4)));
} omp_lock_t;
typedef struct {
  unsigned char state[16] __attribute__((aligned(8)));
} omp_nest_lock_t;

typedef enum omp_sched_t {
  omp_sched_static = 1,
  omp_sched_dynamic = 2,
  omp_sched_guided = 3,
  omp_sched_auto = 4,
  omp_sched_monotonic = (int)0x80000000U
} omp_sched_t;

typedef enum omp_proc_bind_t {
  omp_proc_bind_false = 0,
  omp_proc_bind_true = 1,
  omp_proc_bind_master = 2,
  omp_proc_bind_close = 3,
  omp_proc_bind_spread = 4
} omp_proc_bind_t;

// Threads and regions.
void omp_set_num_threads(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_num_threads(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_max_threads(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_thread_num(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_num_procs(void) LOCKSTEP_OMP_NOTHROW;
int omp_in_parallel(void) LOCKSTEP_OMP_NOTHROW;
int omp_in_final(void) LOCKSTEP_OMP_NOTHROW;
void omp_set_dynamic(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_dynamic(void) LOCKSTEP_OMP_NOTHROW;
void omp_set_nested(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_nested(void) LOCKSTEP_OMP_NOTHROW;
void omp_set_schedule(omp_sched_t, int) LOCKSTEP_OMP_NOTHROW;
void omp_get_schedule(omp_sched_t*, int*) LOCKSTEP_OMP_NOTHROW;
int omp_get_thread_limit(void) LOCKSTEP_OMP_NOTHROW;
void omp_set_max_active_levels(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_max_active_levels(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_level(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_ancestor_thread_num(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_team_size(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_active_level(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_num_teams(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_team_num(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_cancellation(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_max_task_priority(void) LOCKSTEP_OMP_NOTHROW;

// Places.
omp_proc_bind_t omp_get_proc_bind(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_num_places(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_place_num_procs(int) LOCKSTEP_OMP_NOTHROW;
void omp_get_place_proc_ids(int, int*) LOCKSTEP_OMP_NOTHROW;
int omp_get_place_num(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_partition_num_places(void) LOCKSTEP_OMP_NOTHROW;
void omp_get_partition_place_nums(int*) LOCKSTEP_OMP_NOTHROW;

// Devices: there are none.
void omp_set_default_device(int) LOCKSTEP_OMP_NOTHROW;
int omp_get_default_device(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_num_devices(void) LOCKSTEP_OMP_NOTHROW;
int omp_is_initial_device(void) LOCKSTEP_OMP_NOTHROW;
int omp_get_initial_device(void) LOCKSTEP_OMP_NOTHROW;

// Locks.
void omp_init_lock(omp_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_destroy_lock(omp_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_set_lock(omp_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_unset_lock(omp_lock_t*) LOCKSTEP_OMP_NOTHROW;
int omp_test_lock(omp_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_init_nest_lock(omp_nest_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_destroy_nest_lock(omp_nest_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_set_nest_lock(omp_nest_lock_t*) LOCKSTEP_OMP_NOTHROW;
void omp_unset_nest_lock(omp_nest_lock_t*) LOCKSTEP_OMP_NOTHROW;
int omp_test_nest_lock(omp_nest_lock_t*) LOCKSTEP_OMP_NOTHROW;

// Seconds.
double omp_get_wtime(void) LOCKSTEP_OMP_NOTHROW;
double omp_get_wtick(void) LOCKSTEP_OMP_NOTHROW;

#undef LOCKSTEP_OMP_NOTHROW
#ifdef __cplusplus
}
#endif
#endif
