#include "python/agent/job_id.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/job.h"
#include "protocol/runtime_folder.h"

namespace lockstep::agent {
namespace {

// Returns FNV-1a of 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t digest(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string derived_id(bool alone) {
  const pid_t process = alone ? ::getpid() : ::getppid();
  std::string text = fmt::format("{} {} {} {}", dist::machine_identity(), ::geteuid(), process,
                                 dist::process_start_time(process).value_or(0));
  for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}) {
    const char* value = alone ? nullptr : std::getenv(name);
    text += std::string("\n") + (value ? value : "");
  }
  return fmt::format("{}-{:08x}", process, static_cast<uint32_t>(digest(text) ^ (digest(text) >> 32)));
}

}  // namespace

std::string find_job_folder(bool alone) {
  const char* named = std::getenv(protocol::kJobVariable);
  if (named && *named) {
    if (*named != '/') throw Error(fmt::format("{} is no absolute path: {}", protocol::kJobVariable, named));
    if (const std::string problem = protocol::private_folder_problem(named); !problem.empty()) throw Error(problem);
    return named;
  }
  std::string folder = protocol::runtime_directory() + "/" + protocol::kJobPrefix + derived_id(alone);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw StartError("the job's folder " + folder + " could not be made: " + std::strerror(errno));
  if (const std::string problem = protocol::private_folder_problem(folder); !problem.empty()) throw Error(problem);
  return folder;
}

}  // namespace lockstep::agent
