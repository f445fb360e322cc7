// In an archive, and so not in a program that has the function itself, as the worker does (worker/interpose/locks.cpp).
#define _GNU_SOURCE
#include <pthread.h>

int lockstep_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                                 clockid_t clock, const struct timespec* until) {
  return lockstep_cond_clockwait(condition, mutex, clock, until);
}
