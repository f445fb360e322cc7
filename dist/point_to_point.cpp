// send and recv of dist::.
#include <fmt/format.h>

#include "dist/arguments.h"
#include "dist/call_context.h"
#include "dist/dist.h"
#include "dist/watched_work.h"

namespace lockstep::dist {

namespace {
Work send_from(const void* site, const char* function, const at::Tensor& tensor, int dst, const Group& group, int tag) {
  const GroupEntry entry = require_member(function, group);
  check_tensor(function, "tensor", tensor, entry);
  const int to = require_rank(function, "dst", dst, entry);
  if (to == entry.group->identity().group_rank)
    throw ArgumentError(fmt::format("dist::{}: dst = {} is this rank itself; copy the tensor instead", function, dst));
  std::vector<at::Tensor> tensors{movable(tensor)};
  const CallContext call(site, &tensor);
  return Work(entry.handle->send(tensors, to, tag), "send");
}

Work recv_from(const void* site, const char* function, const at::Tensor& tensor, std::optional<int> src,
               const Group& group, int tag) {
  const GroupEntry entry = require_member(function, group);
  check_tensor(function, "tensor", tensor, entry);
  std::vector<at::Tensor> tensors{movable(tensor)};
  const CallContext call(site, &tensor);
  if (!src) return Work(entry.handle->recvAnysource(tensors, tag), "recv");
  const int from = require_rank(function, "src", *src, entry);
  if (from == entry.group->identity().group_rank)
    throw ArgumentError(fmt::format("dist::{}: src = {} is this rank itself", function, *src));
  return Work(entry.handle->recv(tensors, from, tag), "recv");
}
}  // namespace

void send(const at::Tensor& tensor, int dst, const Group& group, int tag) {
  send_from(__builtin_return_address(0), "send", tensor, dst, group, tag).wait();
}

int recv(const at::Tensor& tensor, std::optional<int> src, const Group& group, int tag) {
  const Work work = recv_from(__builtin_return_address(0), "recv", tensor, src, group, tag);
  work.wait();
  return src ? *src : work.source_rank();
}

Work isend(const at::Tensor& tensor, int dst, const Group& group, int tag) {
  return send_from(__builtin_return_address(0), "isend", tensor, dst, group, tag);
}

Work irecv(const at::Tensor& tensor, std::optional<int> src, const Group& group, int tag) {
  return recv_from(__builtin_return_address(0), "irecv", tensor, src, group, tag);
}

bool Work::wait(std::chrono::milliseconds timeout) const {
  if (!work_) throw ArgumentError("dist::Work::wait: this is no work of a collective (it was default-constructed)");
  return work_->wait(timeout);
}

bool Work::is_completed() const {
  if (!work_)
    throw ArgumentError("dist::Work::is_completed: this is no work of a collective (it was default-constructed)");
  return work_->isCompleted();
}

int Work::source_rank() const {
  const auto* watched = dynamic_cast<const WatchedWork*>(work_.get());
  if (!watched) throw ArgumentError("dist::Work::source_rank: this is no work of recv");
  return watched->group()->global_rank(watched->sourceRank());
}

std::ostream& operator<<(std::ostream& out, const Work& work) {
  if (!work.work_) return out << "Work()";
  return out << "Work(" << work.label_ << (work.work_->isCompleted() ? ", done)" : ", in flight)");
}

}  // namespace lockstep::dist
