// Cells that write.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "tests/worker/cells/fixture.h"

static void mixed() {
  printf("printf ");
  std::cout << "cout ";
  (void)!write(1, "write ", 6);
  fprintf(stderr, "error ");
  std::cerr << "cerr";
  if (fork() == 0) {
    (void)!write(1, "child ", 6);
    _exit(0);
  }
  wait(nullptr);
  std::cout << "end";
}
CELL(mixed, mixed);

static void wide() {
  std::wcout << L"wcout \u00fc " << 7 << std::flush;
  wprintf(L" %ls %d ", L"wprintf", 8);
  fputws(L"fputws", stdout);
  putwchar(L' ');
  printf("printf ");
  std::cout << "cout";
  std::wcerr << L"wcerr ";
  std::cerr << "cerr";
}
CELL(wide, wide);

static void unfinished() { printf("10%%\r20%%\r"); }
CELL(unfinished, unfinished);

static void wait_for_file() {
  printf("partial");
  while (access((std::string(getenv("LOCKSTEP_SESSION_DIR")) + "/go").c_str(), F_OK) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
CELL(partial_then_wait, wait_for_file);

// 100 MB of numbered lines of 64 bytes.
static void hundred_megabytes() {
  char line[65];
  for (int i = 0; i < 100 * 1000 * 1000 / 64; ++i) {
    POLL();
    snprintf(line, sizeof line, "%063d\n", i);
    (void)!write(1, line, 64);
  }
}
CELL(hundred_megabytes, hundred_megabytes);

static void storm() {
  for (;;) {
    POLL();
    printf("storm\n");
  }
}
CELL(storm, storm);

static void start_background() {
  std::thread([] {
    while (access((std::string(getenv("LOCKSTEP_SESSION_DIR")) + "/go").c_str(), F_OK) != 0) usleep(1000);
    printf("from the background");
  }).detach();
}
CELL(background, start_background);

static void nothing() {}
CELL(nothing, nothing);

static void ignores_stdin() { printf("%d", getchar()); }
CELL(stdin_is_empty, ignores_stdin);

static void reads_cin() {
  int number = 7;
  std::cin >> number;
  printf("%d", number);
}
CELL(reads_cin, reads_cin);

static void fork_and_leave() {
  if (fork() == 0) {
    printf("child ");
    return;
  }
  wait(nullptr);
  printf("parent");
}
CELL(fork_and_leave, fork_and_leave);

static void grandchild() {
  const pid_t child = fork();
  if (child == 0) {
    execlp("sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  printf("%d", child);
}
CELL(grandchild, grandchild);

// As a daemon does: a session of its own, and no parent.
static void daemon_grandchild() {
  int pids[2];
  if (pipe(pids) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const pid_t daemon = fork();
    if (daemon == 0) {
      execlp("sleep", "sleep", "1000", nullptr);
      _exit(1);
    }
    (void)!write(pids[1], &daemon, sizeof daemon);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  pid_t daemon = 0;
  (void)!read(pids[0], &daemon, sizeof daemon);
  printf("%d", daemon);
}
CELL(daemon_grandchild, daemon_grandchild);
