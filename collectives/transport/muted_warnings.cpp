#include "collectives/transport/muted_warnings.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace lockstep::dist {
namespace {

std::mutex mutex;
int muting = 0;
int level_before = 0;

#ifdef C10_USE_GLOG
int& log_level() { return FLAGS_minloglevel; }
#else
int& log_level() { return FLAGS_caffe2_log_level; }
#endif

// LibTorch reads the level as a plain number, from any thread.
std::atomic_ref<int> level() { return std::atomic_ref<int>(log_level()); }

}  // namespace

MutedWarnings::MutedWarnings() {
  const std::lock_guard lock(mutex);
  if (muting++ > 0) return;
  level_before = level();
  level() = std::max<int>(level_before, c10::GLOG_ERROR);
}

MutedWarnings::~MutedWarnings() {
  const std::lock_guard lock(mutex);
  if (--muting == 0) level() = level_before;
}

}  // namespace lockstep::dist
