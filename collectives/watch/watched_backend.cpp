#include "collectives/watch/watched_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "collectives/transport/sigpipe.h"
#include "collectives/watch/spelling.h"
#include "collectives/watch/watched_call.h"

namespace lockstep::dist {

using c10d::OpType;
using log_layout::EntryState;

thread_local const CallContext* CallContext::current_ = nullptr;
thread_local const Entered* CallsTransport::current_ = nullptr;

namespace {

/// Ends a transport, whose connections were shut down if `connector` is null; else those are closed first. Gloo's
/// destructor joins threads that run its operations. An operation that was queued behind a failed one may wait for a
/// peer until the time limit of its group: when data for the failed one arrives, Gloo stops reading that connection and
/// does not notice its end. Such an operation keeps the thread that is started here, and the group is rebuilt without
/// it.
void end_transport(c10::intrusive_ptr<c10d::Backend> transport, std::shared_ptr<BackendConnector> connector) {
  constexpr std::chrono::seconds kPatience{2};
  const SigpipeBlocked quiet;
  auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> end = ended->get_future();
  std::thread([transport = std::move(transport), connector = std::move(connector), ended]() mutable {
    try {
      if (connector) connector->close();
    } catch (const std::exception&) {
      // A peer has left, or the device has an error: there is nothing to close properly any more.
    }
    transport.reset();
    ended->set_value();
  }).detach();
  end.wait_for(kPatience);
}

}  // namespace

WatchedBackend::WatchedBackend(std::shared_ptr<WatchedGroup> group)
    : c10d::Backend(group->identity().group_rank, static_cast<int>(group->identity().ranks.size())),
      group_(std::move(group)) {
  init();
}

namespace {
template <typename Visit>
void for_each_part(c10d::Backend& transport, const Visit& visit) {
  const auto* mixed = dynamic_cast<const MixedBackend*>(&transport);
  if (!mixed) return visit(transport);
  for (const MixedBackend::Part& part : mixed->parts()) visit(*part.transport);
}
}  // namespace

c10::intrusive_ptr<c10d::Backend> WatchedBackend::transport() const {
  std::lock_guard lock(order_);
  if (!transport_) throw Error(fmt::format("group {} is not connected", group_->identity().name));
  const auto* mixed = dynamic_cast<const MixedBackend*>(transport_.get());
  return mixed ? mixed->parts().back().transport : transport_;
}

c10d::Backend& WatchedBackend::host_transport() const {
  const auto* mixed = dynamic_cast<const MixedBackend*>(transport_.get());
  return mixed ? *mixed->parts().front().transport : *transport_;
}

void WatchedBackend::set_transport(c10::intrusive_ptr<c10d::Backend> transport) {
  if (transport)
    for_each_part(*transport, [this](c10d::Backend& part) {
      part.setGroupUid(getGroupUid());
      part.setGroupDesc(getGroupDesc());
      if (const auto device = getBoundDeviceId()) part.setBoundDeviceId(device);
    });
  std::unique_lock lock(order_);
  std::swap(transport_, transport);
  lock.unlock();
  drop_batch();
  if (transport && !group_->live())
    end_transport(std::move(transport), group_->broken_off() ? nullptr : group_->connector());
}

void WatchedBackend::setGroupUid(const std::string& uid) {
  c10d::Backend::setGroupUid(uid);
  std::lock_guard lock(order_);
  if (transport_) for_each_part(*transport_, [&](c10d::Backend& part) { part.setGroupUid(uid); });
}

void WatchedBackend::setTimeout(std::chrono::milliseconds timeout) {
  std::lock_guard lock(order_);
  if (!transport_) throw Error(fmt::format("group {} is not connected", group_->identity().name));
  for_each_part(*transport_, [&](c10d::Backend& part) { part.setTimeout(timeout); });
}

Entered WatchedBackend::enter_new_group(const std::vector<int64_t>& ranks, uint64_t call_site) {
  Call call(config(), CollectiveOp::new_group, {});
  call.fields.call_site = call_site;
  call.fields.shape = ranks.data();
  call.fields.dimensions = ranks.size();
  for (const int64_t rank : ranks) call.fields.signature = mix(call.fields.signature, static_cast<uint64_t>(rank));
  std::lock_guard lock(order_);
  return group_->enter(call.fields);
}

template <typename Issue>
WatchedBackend::WorkPtr WatchedBackend::run_point_to_point(Call& call, OpType type, int peer, int tag, Issue&& issue) {
  call.fields.flags |= log_layout::kPointToPoint;
  if (const CallContext* context = CallContext::current(); !context || !context->waits())
    call.fields.flags |= log_layout::kAsync;
  call.fields.tag = tag;
  call.message = true;
  call.peer = peer;
  if (call.works_as_gloo()) {  // its messages are done when the host is
    call.device.reset();
    call.fields.flags &= static_cast<uint8_t>(~log_layout::kOnDevice);
  }
  const SigpipeBlocked quiet;  // point to point, Gloo writes on this thread
  std::unique_lock lock(order_);
  const Entered entered = group_->enter_point_to_point(call.fields, peer, type == OpType::SEND);
  return issue_entered(call, entered, type, /*reports=*/false, lock, issue);
}

void WatchedBackend::check_message(const char* function, const Tensors& tensors, int peer, int tag, Use use) const {
  check_list_size(function, "tensors", tensors.size(), 1, "");
  check_tensor(function, "tensors[0]", tensors[0], group_->identity(), use);
  check_tag(function, tag);
  if (peer == getRank())
    throw ArgumentError(fmt::format("{}: rank {} is this rank itself", dist_name(function), group_->global_rank(peer)));
}

namespace {
/// Gloo can't receive messages of no bytes from any rank, so such a message gets one byte.
WatchedBackend::Tensors sendable(WatchedBackend::Tensors tensors) {
  if (tensors[0].numel() == 0) tensors[0] = at::zeros({1}, tensors[0].options().dtype(at::kByte));
  return tensors;
}
}  // namespace

WatchedBackend::WorkPtr WatchedBackend::send(Tensors& tensors, int destination, int tag) {
  const BatchGuard batch(*this);
  const int root = global_root(destination, "send");
  if (unchecked()) check_message("send", tensors, destination, tag, Use::read);
  Call call(config(), CollectiveOp::send, tensors, root);
  call.results = tensors;
  Tensors read = sendable(call.tensors.read(tensors));
  return run_point_to_point(call, OpType::SEND, destination, tag,
                            [=](Backend& b) mutable { return b.send(read, destination, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::recv(Tensors& tensors, int source, int tag) {
  const BatchGuard batch(*this);
  const int root = global_root(source, "recv");
  if (unchecked()) check_message("recv", tensors, source, tag, Use::write);
  Call call(config(), CollectiveOp::recv, tensors, root);
  call.results = tensors;
  Tensors written = sendable(call.tensors.write(tensors));
  return run_point_to_point(call, OpType::RECV, source, tag,
                            [=](Backend& b) mutable { return b.recv(written, source, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::recvAnysource(Tensors& tensors, int tag) {
  const BatchGuard batch(*this);
  if (unchecked()) check_message("recv", tensors, -1, tag, Use::write);
  Call call(config(), CollectiveOp::recv, tensors);
  if (call.on_device())
    throw ArgumentError(fmt::format("{}: the backend {} receives from a rank that is named only; give src",
                                    dist_name("recv"), call.part.backend));
  call.results = tensors;
  Tensors written = sendable(call.tensors.write(tensors));
  return run_point_to_point(call, OpType::RECVANYSOURCE, -1, tag,
                            [=](Backend& b) mutable { return b.recvAnysource(written, tag); });
}

void WatchedBackend::run_steps(CollectiveOp op, int group_root, int64_t bytes, const Steps& steps) {
  Call call(config(), op, {}, group_root < 0 ? -1 : global_root(group_root, op_name(op)));
  call.fields.bytes = bytes;
  call_collective_listener();
  std::unique_lock lock(order_);
  const Entered entered = group_->enter(call.fields);
  const auto transport = transport_;  // keeps what host_transport() returns
  Backend& host = host_transport();
  lock.unlock();  // it waits
  run_entered(entered, host, steps);
}

void WatchedBackend::run_steps_with(CollectiveOp op, int peer, int64_t bytes, const Steps& steps) {
  Call call(config(), op, {}, peer < 0 ? -1 : global_root(peer, op_name(op)));
  call.fields.bytes = bytes;
  call.fields.flags |= log_layout::kPointToPoint;
  std::unique_lock lock(order_);
  const Entered entered = group_->enter_point_to_point(call.fields, peer, op == CollectiveOp::send_object_list);
  const auto transport = transport_;  // keeps what host_transport() returns
  Backend& host = host_transport();
  lock.unlock();  // it waits
  run_entered(entered, host, steps);
}

void WatchedBackend::run_entered(const Entered& entered, Backend& transport, const Steps& steps) {
  const SigpipeBlocked quiet;  // some operations write on this thread
  const CallsTransport calls(entered);
  try {
    steps(transport);
    if (group_->lost_writes()) throw Error("Connection closed by peer");
  } catch (...) {  // becomes what it means
    group_->fail(entered, std::current_exception());
  }
  group_->finish(entered, EntryState::done);
}

WatchedBackend::WorkPtr WatchedBackend::barrier(const c10d::BarrierOptions& options) {
  Call call(config(), CollectiveOp::barrier, {});
  // A device's barrier is on the device of its group, wherever c10d has made a tensor for the call.
  c10d::BarrierOptions passed = options;
  if (call.on_device()) passed.device = std::nullopt;
  return run(call, OpType::BARRIER, options.asyncOp,
             [passed = call.passed(passed)](Backend& b) { return b.barrier(passed); });
}

void WatchedBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  if (options.timeout != c10d::kUnsetTimeout) check_limit("monitored_barrier", "timeout", options.timeout);
  Call call(config(), CollectiveOp::monitored_barrier, {});
  std::unique_lock lock(order_);
  const Entered entered = group_->enter(call.fields);
  const auto transport = transport_;  // keeps what host_transport() returns
  Backend& host = host_transport();
  lock.unlock();  // it waits
  const SigpipeBlocked quiet;  // and writes on this thread
  const CallsTransport calls(entered);
  try {
    host.monitoredBarrier(options, wait_all_ranks);
  } catch (...) {  // becomes what it means
    const bool has_limit = options.timeout > std::chrono::milliseconds::zero();
    group_->fail(entered, std::current_exception(), has_limit ? options.timeout : group_->identity().timeout);
  }
  group_->finish(entered, EntryState::done);
}

void WatchedBackend::abort() {
  group_->break_off(log_layout::BreakCause::aborted, fmt::format("group {} was aborted", group_->identity().name));
}

void WatchedBackend::shutdown() {
  group_->break_off(log_layout::BreakCause::excluded, fmt::format("group {} was shut down", group_->identity().name));
}

namespace {
[[noreturn]] void throw_not_watched(const char* what) {
  throw Error(
      fmt::format("{} of a process group of Lockstep is not there: the new group would be neither logged nor freed by "
                  "abort. Use {}(ranks){}",
                  what, dist_name("new_group"), spelling::kAfterALoss.text()));
}
}  // namespace

c10::intrusive_ptr<c10d::Backend> WatchedBackend::shrink(const std::vector<int64_t>&, int,
                                                         const c10::intrusive_ptr<Options>&) {
  throw_not_watched("shrink");
}
c10::intrusive_ptr<c10d::Backend> WatchedBackend::split(const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>&,
                                                        const c10::intrusive_ptr<Options>&) {
  throw_not_watched("split");
}
c10::intrusive_ptr<c10d::Backend> WatchedBackend::merge(const c10::intrusive_ptr<c10d::Store>&,
                                                        const c10::intrusive_ptr<Options>&, const int&, const int&) {
  throw_not_watched("merge");
}

}  // namespace lockstep::dist
