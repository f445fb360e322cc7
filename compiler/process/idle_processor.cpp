#include "compiler/process/idle_processor.h"

#include <fstream>
#include <string>
#include <thread>

namespace lockstep::compiler {

// The fourth field of /proc/loadavg is RUNNING/ALL, in threads, the reader among them (proc_loadavg(5)).
bool has_idle_processor() {
  std::ifstream file("/proc/loadavg");
  std::string average;
  unsigned running = 0;
  if (!(file >> average >> average >> average >> running)) return true;
  return running <= std::thread::hardware_concurrency();
}

}  // namespace lockstep::compiler
