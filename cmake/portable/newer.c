// What the C library has only since versions that systems at the floor (cmake/Portable.cmake) do not have. Hidden, so that
// each program and each library has its own. Where the system has the function, that one is called, if it makes a difference.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// 2.32. False is always right; the C++ library then counts references with atomic instructions.
HIDDEN char __libc_single_threaded = 0;

// 2.30
HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// 2.33: before, these were inline functions over others, which take the version of the structure.
int __xstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
HIDDEN int stat(const char* path, struct stat* to) { return __xstat(1, path, to); }
HIDDEN int fstat(int fd, struct stat* to) { return __fxstat(1, fd, to); }
HIDDEN int lstat(const char* path, struct stat* to) { return __lxstat(1, path, to); }
HIDDEN int fstatat(int fd, const char* path, struct stat* to, int flags) { return __fxstatat(1, fd, path, to, flags); }
// One structure for both on x86-64.
HIDDEN int stat64(const char* path, struct stat64* to) { return __xstat(1, path, (struct stat*)to); }
HIDDEN int fstat64(int fd, struct stat64* to) { return __fxstat(1, fd, (struct stat*)to); }
HIDDEN int lstat64(const char* path, struct stat64* to) { return __lxstat(1, path, (struct stat*)to); }

// Looked up before main, or when the library is loaded: callers may be in a signal handler.
static int (*system_find_object)(void*, struct dl_find_object*);
static int (*system_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
static struct mallinfo2 (*system_mallinfo2)(void);
__attribute__((constructor(101))) static void look_up(void) {
  *(void**)&system_find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
  *(void**)&system_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  *(void**)&system_mallinfo2 = dlsym(RTLD_DEFAULT, "mallinfo2");
}

// 2.30, of the name that clockwait.c gives it. The wait over the real-time clock ends early or late if that clock is set
// meanwhile; callers look at the time again.
HIDDEN int lockstep_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                   const struct timespec* until) {
  if (system_clockwait) return system_clockwait(condition, mutex, clock, until);
  const long long second = 1000000000;
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  long long left = (until->tv_sec - now.tv_sec) * second + until->tv_nsec - now.tv_nsec;
  if (left < 0) left = 0;
  left += real.tv_nsec;
  real.tv_sec += left / second;
  real.tv_nsec = left % second;
  return pthread_cond_timedwait(condition, mutex, &real);
}

// 2.33. mallinfo counts in int: above 2 GB its numbers are wrong, so there are none.
HIDDEN struct mallinfo2 mallinfo2(void) {
  const struct mallinfo2 unknown = {0};
  return system_mallinfo2 ? system_mallinfo2() : unknown;
}

// 2.32
HIDDEN const char* sigabbrev_np(int number) {
  static const char* const kNames[] = {
      [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT",   [SIGILL] = "ILL",       [SIGTRAP] = "TRAP",
      [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",     [SIGKILL] = "KILL",     [SIGUSR1] = "USR1",
      [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2", [SIGPIPE] = "PIPE",   [SIGALRM] = "ALRM",     [SIGTERM] = "TERM",
      [SIGCHLD] = "CHLD", [SIGCONT] = "CONT", [SIGSTOP] = "STOP",   [SIGTSTP] = "TSTP",     [SIGTTIN] = "TTIN",
      [SIGTTOU] = "TTOU", [SIGURG] = "URG",   [SIGXCPU] = "XCPU",   [SIGXFSZ] = "XFSZ",     [SIGVTALRM] = "VTALRM",
      [SIGPROF] = "PROF", [SIGSYS] = "SYS",   [SIGWINCH] = "WINCH", [SIGSTKFLT] = "STKFLT", [SIGPOLL] = "POLL",
      [SIGPWR] = "PWR"};
  return number > 0 && (size_t)number < sizeof kNames / sizeof *kNames ? kNames[number] : NULL;
}

// 2.36
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

// 2.35. The loader's lock is taken, which the function of newer systems does without.
struct Search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int look_into(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  struct Search* search = data;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  void* unwinding = NULL;
  int is_inside = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t at = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) unwinding = (void*)at;
    if (part->p_type != PT_LOAD) continue;
    if (at < begin) begin = at & ~(uintptr_t)0xfff;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
    if (search->address >= at && search->address < at + part->p_memsz) is_inside = 1;
  }
  if (!is_inside) return 0;
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_eh_frame = unwinding;
  return 1;
}

HIDDEN int _dl_find_object(void* address, struct dl_find_object* found) {
  if (system_find_object) return system_find_object(address, found);
  struct Search search = {(uintptr_t)address, found};
  memset(found, 0, sizeof *found);
  if (dl_iterate_phdr(look_into, &search) != 1) return -1;
  Dl_info information;
  return dladdr1(address, &information, (void**)&found->dlfo_link_map, RTLD_DL_LINKMAP) != 0 ? 0 : -1;
}
