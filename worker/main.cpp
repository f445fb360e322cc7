// lockstep-worker is one rank of a session, or with --store the process that holds the session's store. `lockstep`
// starts both, and tells them all they need by their environment (worker/process/configuration.h, worker/store.h). With
// --verify it compares saved replicas (worker/verify_saved.h), with --ranks it starts the store and ranks as copies of
// itself (worker/rank_copies.h).
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "protocol/descriptor.h"
#include "protocol/slurm_signals.h"
#include "protocol/version.h"
#include "worker/cell/cell_objects.h"
#include "worker/cell/rank_names.h"
#include "worker/host.h"
#include "worker/interpose/crash.h"
#include "worker/interpose/exits.h"
#include "worker/io_thread.h"
#include "worker/libtorch.h"
#include "worker/process/configuration.h"
#include "worker/process/endable_call.h"
#include "worker/process/interrupt.h"
#include "worker/process/outbox.h"
#include "worker/process/output_pipes.h"
#include "worker/process/stack.h"
#include "worker/rank_copies.h"
#include "worker/run_queue.h"
#include "worker/run_thread.h"
#include "worker/standard_input.h"
#include "worker/store.h"
#include "worker/verify_saved.h"

namespace lockstep::worker {
namespace {

IoThread* g_io = nullptr;
int g_exit_code = 0;

/// Sends the rest of the output. It is registered first, so that it runs after everything that cells have registered.
/// The destructors of libraries' globals are left out: the process is gone in a moment, and threads still use them.
void end_process() {
  std::fflush(nullptr);
  g_io->finish();
  ::syscall(SYS_exit_group, g_exit_code);
}

int run_rank() {
  const auto& settings = configuration();
  if (settings.hub.empty() || settings.hub.find("://") == std::string::npos || settings.identity.empty()) {
    for (const auto& problem : settings.problems) std::fprintf(stderr, "lockstep-worker: %s\n", problem.c_str());
    return 3;
  }
  name_rank(settings);
  ::unsetenv("LOCKSTEP_IDENTITY");  // it is this process's, not that of programs that cells start
  // All of this lives as long as the process: other threads use it to the last moment.
  const int event_fd = make_event().release();
  auto* pipes = new OutputPipes(settings.output ? *settings.output : protocol::make_output_channels());
  install_standard_input();
  auto* outbox = new Outbox(*pipes, event_fd);
  auto* queue = new RunQueue;
  become_run_thread();
  protocol::outlive_slurm_signals();
  warm_up_stacks();
  StackProbe::watch_this_thread();
  prepare_endable_calls();
  install_crash_handlers(event_fd);
  send_values_to(*outbox);
  g_io = new IoThread(settings, *outbox, *pipes, *queue, event_fd);
  std::atexit(end_process);
  auto* run_thread = new RunThread(settings, *outbox, *queue, *g_io);
  const int code = run_thread->run();
  exit_quietly(code);
}

void print_versions() {
  const nlohmann::json versions = {{"program", "lockstep-worker"},
                                   {"lockstep", kVersion},
                                   {"protocol", kProtocolVersion},
                                   {"libtorch", libtorch_version()},
                                   {"libtorch_built_with", libtorch_built_with()},
                                   {"cell_abi", kCellAbi},
                                   {"cell_limit", cells_left()}};
  std::printf("%s\n", versions.dump().c_str());
}

/// Ends the process without the destructors of libraries' globals.
[[noreturn]] void end_with(int code) {
  std::fflush(nullptr);
  ::syscall(SYS_exit_group, code);
  std::abort();
}

}  // namespace

void set_exit_code(int code) { g_exit_code = code; }

}  // namespace lockstep::worker

int main(int argc, char** argv) {
  using namespace lockstep::worker;
  restore_library_path();
  const std::string_view option = argc > 1 ? argv[1] : "";
  const bool verifies = option == "--verify" && argc == 3;
  const bool copies = option == "--ranks" && argc == 3;
  if (!verifies && !copies && (argc > 2 || (!option.empty() && option != "--store" && option != "--version"))) {
    std::fprintf(stderr,
                 "usage: lockstep-worker [--store | --ranks FD | --verify FD | --version]\n"
                 "One rank of a session. `lockstep` starts it; everything else comes by LOCKSTEP_* variables.\n");
    return 2;
  }
  if (option == "--version") {
    print_versions();
    return 0;
  }
  // The store keeps the ranks' process groups, so it has to be there when its owner was killed; its lifeline ends it.
  if (option == "--store") end_with(run_store());
  // Who started this process owns it: it does not outlive its owner, however that ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (verifies) end_with(verify_saved(std::atoi(argv[2])));
  try {
    if (copies) {
      warm_up_libtorch();
      const Copy copy = copy_for_orders(argv);
      if (copy != Copy::rank) end_with(copy == Copy::store ? run_store() : 0);
    }
    return run_rank();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-worker: %s\n", error.what());
    return 3;
  }
}
