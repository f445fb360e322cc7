// A cell that registers what runs at the process's end, linked with nothing, as the compiler of cells does it.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "tests/worker/cells/fixture.h"

static void registers() {
  atexit([] { printf("handler ran"); });
  printf("%d %d ", at_quick_exit([] {}), pthread_atfork(nullptr, nullptr, nullptr));
  exit(0);
}
CELL(registers, registers);
