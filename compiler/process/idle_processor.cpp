#include "compiler/process/idle_processor.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep::compiler {

// The fourth field of /proc/loadavg is RUNNING/ALL, in threads of all processes (proc_loadavg(5)).
bool has_idle_processor() {
  std::ifstream file("/proc/loadavg");
  std::string average;
  long running = 0;
  const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (processors < 1 || !(file >> average >> average >> average >> running)) return true;
  return running <= processors;
}

}  // namespace lockstep::compiler
