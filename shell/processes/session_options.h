// Holds what a user asks of a session: on the command line, or with %dist_init.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/status.h"
#include "shell/processes/object_source.h"
#include "shell/processes/rehearsal.h"

namespace lockstep::shell {

/// SessionOptions::launch of ranks on the nodes of a Ray cluster.
inline constexpr const char* kRay = "ray";

/// The backend of ranks on the CPU of one machine (collectives/transport/shared_memory).
inline constexpr const char* kSharedMemory = "shared_memory";

/// Says what is recorded of ranks, so that one of them can run again, alone (docs/replay.md).
struct RecordOptions {
  int64_t steps = 0;  // that each rank keeps; 0: nothing is recorded
  std::string path;  // the file; empty: one is made after a failure only, in the current folder
};

/// The rank of a recording that a session runs again, without the others.
struct ReplayedRank {
  std::string path;  // of the recording
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1, threads = 1;
  std::optional<int64_t> until;  // the step before which it ends
};

struct SessionOptions {
  std::optional<int> num_processes;  // none: one per visible GPU, two CPU ranks where there is none
  std::vector<int> gpu_ids;
  bool share_gpu = false;  // ranks may share GPUs; their collectives go over Gloo, unless `backend` says NCCL
  bool all_gpus_visible = false;  // each rank sees every GPU of the session; else its own only
  std::string backend = "auto";  // auto, gloo, shared_memory, nccl, cpu:gloo,cuda:nccl
  double cell_timeout_s = 0;  // 0: none
  double hang_timeout_s = 0;  // 0: only proven hangs
  double compile_timeout_s = 60;
  int64_t compile_memory_mb = kCompileMemoryMb;  // 0: no limit
  bool check_collectives = true;
  bool debug_cells = false;
  std::string interrupt_words = "Ctrl-C";  // how people interrupt a cell, as messages name it
  bool abort_hangs = false;  // `run`: a proven hang is aborted; a terminal leaves it to %abort
  std::vector<std::string> include_dirs;  // -I
  std::map<std::string, std::string> arguments;  // --arg NAME=VALUE: what cells read with arg("NAME")
  bool reports_activity = false;  // the front end shows what takes long (ActivityEvent)
  /// Called with output of a rank when it comes, before it is held for merging: for front ends that show it at once and
  /// again, in its place, when its OutputEvent comes. None: nothing is called.
  std::function<void(int rank, Stream stream, std::string_view bytes)> early_output;
  /// Asks the person at the front end for a line, and serves the ranks meanwhile. Returns nothing where they have ended
  /// the input, or interrupted it. None: nobody can be asked.
  std::function<std::optional<std::string>(const std::string& prompt)> read_line;
  /// Lets go of the terminal of a detachable session, which then waits so many seconds; none: as it was started with.
  /// None: the session ends with its terminal.
  std::function<void(std::optional<int64_t> seconds)> detach;
  bool keeps_journal = true;
  std::optional<int64_t> journal_mb;  // of output in it; none: as LOCKSTEP_JOURNAL says
  bool shows_rich_values = false;  // the front end draws HTML and pictures that values of Python have
  MakeObjectSource objects;  // where objects come from; none: lockstep-compiler
  /// The ranks are Python: of this interpreter, a path or a name in PATH; empty: of the environment.
  std::optional<std::string> python;
  std::optional<std::string>
      job;  // the id of a Python job to attach to, instead of starting ranks; empty: the only one
  std::string hosts;  // other machines that may have ranks of the job: "node1,node2", "slurm:1234", "kubectl:pod1,pod2"
  std::string remote_program;  // the path of lockstep there
  std::string ticket;  // the file with which relays come that somebody else starts; `launch`: the session does
  std::string launch;  // the command of a launcher: "mpirun -n 4 -H node1:2,node2:2"; or kRay
  std::optional<double> start_timeout_s;  // for machines to answer, and ranks to come; none: 30, and with a ticket 600
  bool is_here() const { return hosts.empty() && ticket.empty() && launch.empty(); }
  bool ends_at_continue =
      false;  // the prompt of `lockstep run -- LAUNCHER…`: continue gives the terminal back to the job
  bool has_python_ranks() const { return job || python; }
  /// Whether ranks that live can be the default group without the others: PyTorch's own backends can't connect again.
  bool can_continue() const { return !has_python_ranks() || (!job && (backend == "auto" || backend == kSharedMemory)); }
  RecordOptions record;
  std::optional<ReplayedRank> replay;
  std::optional<Rehearsal> rehearsal;  // ranks load objects and run none of them: `lockstep build`
};

}  // namespace lockstep::shell
