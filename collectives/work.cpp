#include "collectives/work.h"

#include <fmt/format.h>

#include "collectives/group_arguments.h"
#include "collectives/watch/watched_work.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

c10d::Work& Work::work(const char* function) const {
  if (!work_)
    throw ArgumentError(
        fmt::format("dist::Work::{}: this is no work of a collective (it was default-constructed)", function));
  return *work_;
}

bool Work::wait(std::chrono::milliseconds timeout) const { return work("wait").wait(timeout); }

bool Work::is_completed() const { return work("is_completed").isCompleted(); }

bool Work::is_success() const {
  c10d::Work& work = this->work("is_success");
  return work.isCompleted() && work.isSuccess();
}

std::exception_ptr Work::exception() const { return work("exception").exception(); }

std::vector<at::Tensor> Work::result() const { return work("result").result(); }

c10::intrusive_ptr<c10::ivalue::Future> Work::get_future() const { return work("get_future").getFuture(); }

int Work::source_rank() const {
  const auto* watched = dynamic_cast<const WatchedWork*>(&work("source_rank"));
  const int rank = watched ? watched->sourceRank() : -1;
  if (rank < 0) throw ArgumentError("dist::Work::source_rank: this is no work of recv, or it is not done");
  return default_rank_of(watched->group()->global_rank(rank));
}

void Work::synchronize() const { work("synchronize").synchronize(); }

void Work::block_current_stream() const { work("block_current_stream").blockCurrentStream(); }

std::ostream& operator<<(std::ostream& out, const Work& work) {
  if (!work.work_) return out << "Work()";
  return out << "Work(" << work.label_ << (work.work_->isCompleted() ? ", done)" : ", in flight)");
}

}  // namespace lockstep::dist
