#include "worker/process/standard_streams.h"

#include <cstdio>
#include <iostream>

namespace lockstep::worker {

void flush_standard_streams() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace lockstep::worker
