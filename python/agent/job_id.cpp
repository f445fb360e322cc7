#include "python/agent/job_id.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "collectives/log/process_identity.h"
#include "protocol/checksum.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/job.h"
#include "protocol/runtime_folder.h"

namespace lockstep::agent {
namespace {

std::string derived_id(bool alone) {
  const pid_t process = alone ? ::getpid() : ::getppid();
  std::string text = fmt::format("{} {} {} {}", dist::machine_identity(), ::geteuid(), process,
                                 dist::process_start_time(process).value_or(0));
  for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"})
    text += "\n" + (alone ? "" : protocol::variable(name));
  const uint64_t digest = protocol::fnv1a(text);
  return fmt::format("{}-{:08x}", process, static_cast<uint32_t>(digest ^ (digest >> 32)));
}

/// Makes the folder unless it is there. Throws StartError, and Error for one that is not private.
void make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw StartError("the job's folder " + folder + " could not be made: " + std::strerror(errno));
  if (const std::string problem = protocol::private_folder_problem(folder); !problem.empty()) throw Error(problem);
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace

std::string find_job_folder(bool alone) {
  const std::string named = protocol::variable(protocol::kJobVariable);
  if (!named.empty() && named.front() != '/')
    throw Error(fmt::format("{} is no absolute path: {}", protocol::kJobVariable, named));
  if (!named.empty() && (::access(named.c_str(), F_OK) == 0 || !watch_of_job().starts_with(protocol::kJobPrefix))) {
    if (const std::string problem = protocol::private_folder_problem(named); !problem.empty()) throw Error(problem);
    return named;
  }
  const std::string name = named.empty() ? protocol::kJobPrefix + derived_id(alone) : watch_of_job();
  const std::string folder = protocol::runtime_directory() + "/" + name;
  make_folder(folder);
  return folder;
}

std::string watch_of_job() {
  const std::string named = protocol::variable(protocol::kJobVariable);
  return named.substr(named.rfind('/') + 1);
}

// torchrun starts the ranks of a later attempt with another count. Its own name of the run is "none" unless it is given
// one, hence the address of the rendezvous.
std::string run_of_launcher() {
  const std::string host = protocol::variable("MASTER_ADDR");
  if (is_loopback(host)) return "";
  const std::string address = host.empty() ? "" : fmt::format("{}:{}", host, protocol::variable("MASTER_PORT"));
  if (const std::string run = protocol::variable("TORCHELASTIC_RUN_ID"); !run.empty())
    return fmt::format("{} {} #{}", run, address, protocol::variable("TORCHELASTIC_RESTART_COUNT"));
  if (const std::string job = protocol::variable("SLURM_JOB_ID");
      !job.empty() && !protocol::variable("SLURM_STEP_ID").empty())
    return fmt::format("Slurm {}.{} {}", job, protocol::variable("SLURM_STEP_ID"), address);
  // In each rank; scripts may set the address later.
  if (const std::string job = protocol::variable("PMIX_NAMESPACE");
      !job.empty() && !protocol::variable("OMPI_COMM_WORLD_RANK").empty())
    return fmt::format("Open MPI {} {}", job, address);
  return address;
}

}  // namespace lockstep::agent
