// Does send and recv of dist::.
#include <fmt/format.h>

#include "collectives/dist.h"
#include "collectives/group_arguments.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"

namespace lockstep::dist {

namespace {
struct Message {
  const char* function;
  bool sends;
  at::Tensor tensor;
  std::optional<Rank> peer;
  int tag;
};

struct CheckedMessage {
  GroupEntry entry;
  int peer = -1;  // group rank; -1: any
};

CheckedMessage check(const Message& message, const Group& group) {
  const char* const peer_name = message.sends ? "dst" : "src";
  CheckedMessage result{require_member(message.function, group)};
  const auto& identity = result.entry.group->identity();
  check_tensor(message.function, "tensor", message.tensor, identity, message.sends ? Use::read : Use::write);
  check_tag(message.function, message.tag);
  if (!message.peer) return result;
  result.peer = require_rank(message.function, peer_name, *message.peer, result.entry);
  if (result.peer == identity.group_rank)
    throw ArgumentError(fmt::format("dist::{}: {} = {} is this rank itself{}", message.function, peer_name,
                                    message.peer->value(), message.sends ? "; copy the tensor instead" : ""));
  return result;
}

Work begin(const void* site, const Message& message, const CheckedMessage& checked, bool waits) {
  std::vector<at::Tensor> tensors{message.tensor};
  const CallContext call(site, waits);
  c10d::ProcessGroup& group = *checked.entry.handle;
  if (message.sends) return Work(group.send(tensors, checked.peer, message.tag), "send");
  if (checked.peer < 0) return Work(group.recvAnysource(tensors, message.tag), "recv");
  return Work(group.recv(tensors, checked.peer, message.tag), "recv");
}
}  // namespace

void send(const at::Tensor& tensor, const Rank& dst, const Group& group, int tag) {
  const Message message{"send", true, tensor, dst, tag};
  begin(__builtin_return_address(0), message, check(message, group), true).wait();
}

int recv(const at::Tensor& tensor, const std::optional<Rank>& src, const Group& group, int tag) {
  const Message message{"recv", false, tensor, src, tag};
  const CheckedMessage checked = check(message, group);
  const Work work = begin(__builtin_return_address(0), message, checked, true);
  work.wait();
  return checked.peer >= 0 ? default_rank_of(checked.entry.group->global_rank(checked.peer)) : work.source_rank();
}

Work isend(const at::Tensor& tensor, const Rank& dst, const Group& group, int tag) {
  const Message message{"isend", true, tensor, dst, tag};
  return begin(__builtin_return_address(0), message, check(message, group), false);
}

Work irecv(const at::Tensor& tensor, const std::optional<Rank>& src, const Group& group, int tag) {
  const Message message{"irecv", false, tensor, src, tag};
  return begin(__builtin_return_address(0), message, check(message, group), false);
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& p2p_op_list) {
  if (p2p_op_list.empty()) throw ArgumentError("dist::batch_isend_irecv: the list is empty");
  std::vector<Message> messages;
  std::vector<CheckedMessage> checked;
  for (const P2POp& op : p2p_op_list) {
    messages.push_back({"batch_isend_irecv", op.sends, op.tensor, op.peer, op.tag});
    checked.push_back(check(messages.back(), op.group));
    if (checked.back().entry.handle != checked.front().entry.handle)
      throw ArgumentError("dist::batch_isend_irecv: the operations are of several groups; they must be of one");
  }
  // On NCCL all of them are one operation: two ranks that both send first would wait for each other.
  WatchedBackend& backend = *checked.front().entry.backend;
  const bool together = checked.front().entry.group->live() && backend.supportsCoalescing();
  if (together) backend.startCoalescing();
  std::vector<Work> works;
  for (size_t i = 0; i < messages.size(); ++i)
    works.push_back(begin(__builtin_return_address(0), messages[i], checked[i], false));
  if (!together) return works;
  const CallContext call(__builtin_return_address(0), /*waits=*/false);
  const auto all = backend.endCoalescing();
  for (size_t i = 0; i < works.size(); ++i)
    if (!works[i].handle()) works[i] = Work(all, messages[i].sends ? "send" : "recv");
  return works;
}

}  // namespace lockstep::dist
