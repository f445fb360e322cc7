// Sends values that are no tensors as bytes: their sizes first, then the bytes, padded to the longest. The log has one
// entry for both.
#include "collectives/objects.h"
#include "collectives/group_arguments.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "collectives/dist.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"

namespace lockstep::dist::detail {

namespace {
using Tensors = std::vector<at::Tensor>;

at::Tensor tensor_of(const Bytes& bytes, int64_t size) {
  at::Tensor tensor = at::zeros({size}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

at::Tensor number(int64_t value) { return at::full({1}, value, at::kLong); }

int64_t size_of(const Bytes& bytes) { return static_cast<int64_t>(bytes.size()); }

Bytes first(const at::Tensor& tensor, int64_t size) {
  const uint8_t* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + size};
}

/// Returns a copy of each rank's row.
Tensors gathered(c10d::Backend& transport, at::Tensor own) {
  at::Tensor all = at::empty({own.numel() * transport.getSize()}, own.options());
  transport._allgather_base(all, own)->wait();
  return all.view({transport.getSize(), own.numel()}).unbind();
}

std::vector<int64_t> sizes_of_all(c10d::Backend& transport, const Bytes& bytes) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& each : gathered(transport, number(size_of(bytes)))) sizes.push_back(each.item<int64_t>());
  return sizes;
}

std::vector<Bytes> cut(const Tensors& tensors, const std::vector<int64_t>& sizes) {
  std::vector<Bytes> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back(first(tensors[i], sizes[i]));
  return result;
}

void broadcast_from(c10d::Backend& transport, int root, at::Tensor& tensor) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  Tensors tensors{tensor};
  transport.broadcast(tensors, options)->wait();
}
}  // namespace

std::vector<Bytes> all_gather_bytes(const void* site, const Bytes& bytes, const Group& group) {
  const GroupEntry entry = require_member("all_gather_object", group);
  const CallContext call(site);
  std::vector<Bytes> result;
  entry.backend->run_steps(CollectiveOp::all_gather_object, -1, size_of(bytes), [&](c10d::Backend& transport) {
    const std::vector<int64_t> sizes = sizes_of_all(transport, bytes);
    result = cut(gathered(transport, tensor_of(bytes, *std::max_element(sizes.begin(), sizes.end()))), sizes);
  });
  return result;
}

std::vector<Bytes> gather_bytes(const void* site, const Bytes& bytes, const Rank& dst, const Group& group) {
  const GroupEntry entry = require_member("gather_object", group);
  const int root = require_rank("gather_object", "dst", dst, entry);
  const CallContext call(site);
  std::vector<Bytes> result;
  entry.backend->run_steps(CollectiveOp::gather_object, root, size_of(bytes), [&](c10d::Backend& transport) {
    const std::vector<int64_t> sizes = sizes_of_all(transport, bytes);
    const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
    Tensors own{tensor_of(bytes, longest)};
    std::vector<Tensors> all;
    if (transport.getRank() == root) {
      all.emplace_back();
      for (size_t i = 0; i < sizes.size(); ++i) all[0].push_back(at::empty({longest}, at::kByte));
    }
    c10d::GatherOptions options;
    options.rootRank = root;
    transport.gather(all, own, options)->wait();
    if (!all.empty()) result = cut(all[0], sizes);
  });
  return result;
}

Bytes broadcast_bytes(const void* site, const Bytes& bytes, const Rank& src, const Group& group) {
  const GroupEntry entry = require_member("broadcast_object_list", group);
  const int root = require_rank("broadcast_object_list", "src", src, entry);
  const CallContext call(site);
  Bytes result;
  entry.backend->run_steps(CollectiveOp::broadcast_object_list, root, size_of(bytes), [&](c10d::Backend& transport) {
    at::Tensor size = number(size_of(bytes));
    broadcast_from(transport, root, size);
    const int64_t length = size.item<int64_t>();
    at::Tensor tensor = transport.getRank() == root ? tensor_of(bytes, length) : at::zeros({length}, at::kByte);
    broadcast_from(transport, root, tensor);
    result = first(tensor, length);
  });
  return result;
}

Bytes scatter_bytes(const void* site, const std::vector<Bytes>& parts, const Rank& src, const Group& group) {
  const GroupEntry entry = require_member("scatter_object_list", group);
  const int root = require_rank("scatter_object_list", "src", src, entry);
  const CallContext call(site);
  Bytes result;
  int64_t total = 0, longest = 0;
  for (const Bytes& part : parts) total += size_of(part), longest = std::max(longest, size_of(part));
  entry.backend->run_steps(CollectiveOp::scatter_object_list, root, total, [&](c10d::Backend& transport) {
    const auto scattered = [&](at::Tensor own, const auto& part_of) {
      std::vector<Tensors> all;
      if (!parts.empty()) all.emplace_back();
      for (const Bytes& part : parts) all[0].push_back(part_of(part));
      Tensors outputs{own};
      c10d::ScatterOptions options;
      options.rootRank = root;
      transport.scatter(outputs, all, options)->wait();
      return own;
    };
    const at::Tensor sizes = scattered(at::zeros({2}, at::kLong), [&](const Bytes& part) {
      at::Tensor both = at::empty({2}, at::kLong);
      both[0] = size_of(part);
      both[1] = longest;
      return both;
    });
    const at::Tensor own = scattered(at::empty({sizes[1].item<int64_t>()}, at::kByte),
                                     [&](const Bytes& part) { return tensor_of(part, longest); });
    result = first(own, sizes[0].item<int64_t>());
  });
  return result;
}

void send_bytes(const void* site, const Bytes& bytes, const Rank& dst, const Group& group) {
  const GroupEntry entry = require_member("send_object_list", group);
  const int to = require_rank("send_object_list", "dst", dst, entry);
  if (to == entry.group->identity().group_rank)
    throw ArgumentError(
        fmt::format("dist::send_object_list: dst = {} is this rank itself; copy the list instead", dst.value()));
  const CallContext call(site, /*waits=*/true);
  entry.backend->run_steps_with(CollectiveOp::send_object_list, to, size_of(bytes), [&](c10d::Backend& transport) {
    const auto limit = entry.group->identity().timeout;
    Tensors size{number(size_of(bytes))}, tensor{tensor_of(bytes, size_of(bytes))};  // CBOR is never empty
    transport.send(size, to, 0)->wait(limit);
    transport.send(tensor, to, 0)->wait(limit);
  });
}

int recv_bytes(const void* site, Bytes& bytes, const std::optional<Rank>& src, const Group& group) {
  const GroupEntry entry = require_member("recv_object_list", group);
  int from = src ? require_rank("recv_object_list", "src", *src, entry) : -1;
  if (from == entry.group->identity().group_rank)
    throw ArgumentError(fmt::format("dist::recv_object_list: src = {} is this rank itself", src->value()));
  const CallContext call(site, /*waits=*/true);
  entry.backend->run_steps_with(CollectiveOp::recv_object_list, from, 0, [&](c10d::Backend& transport) {
    const auto limit = entry.group->identity().timeout;
    Tensors size{number(0)};
    const auto first_message = from < 0 ? transport.recvAnysource(size, 0) : transport.recv(size, from, 0);
    first_message->wait(limit);
    if (from < 0) from = first_message->sourceRank();
    Tensors tensor{at::empty({size[0].item<int64_t>()}, at::kByte)};
    transport.recv(tensor, from, 0)->wait(limit);
    bytes = first(tensor[0], tensor[0].numel());
  });
  return default_rank_of(entry.group->global_rank(from));
}

void check_object_list(const char* function, const char* name, size_t size, size_t expected) {
  check_list_size(function, name, size, expected,
                  expected == 0 ? " on ranks other than dst" : ", as many as there are to receive");
}

bool is_this_rank(const char* function, const char* name, const Rank& rank, const Group& group) {
  const GroupEntry entry = require_member(function, group);
  return require_rank(function, name, rank, entry) == entry.group->identity().group_rank;
}

size_t group_size(const char* function, const Group& group) {
  return require_member(function, group).group->identity().ranks.size();
}

void throw_unwritable(const char* function, const char* what) {
  throw ArgumentError(fmt::format("dist::{}: the value can't be written as JSON: {}", function, what));
}

void throw_unreadable(const char* function, const char* what) {
  throw Error(
      fmt::format("dist::{}: what arrived is no value of the type that this rank asks for: {}. Every rank has to "
                  "give and ask for the same type",
                  function, what));
}

}  // namespace lockstep::dist::detail
