// Collectives of values that are not tensors: anything that nlohmann::json can hold. Part of dist.h, whose first lines
// apply here, too.
//
// Every rank passes values of one type T. They travel as CBOR, so that every double arrives with the same bits. A value
// that can't be written as JSON is an ArgumentError before anything is sent; one that can't be read as a T where it
// arrives is an Error. The group stays usable. Each call is one entry of the collective log, under its name. Collective
// over the group; returns when this rank's part is done.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "collectives/work.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace detail {
using Bytes = std::vector<uint8_t>;
// `site` is the return address in the caller's code.
std::vector<Bytes> all_gather_bytes(const void* site, const Bytes& bytes, const Group& group);
std::vector<Bytes> gather_bytes(const void* site, const Bytes& bytes, const Rank& dst, const Group& group);
Bytes broadcast_bytes(const void* site, const Bytes& bytes, const Rank& src, const Group& group);
Bytes scatter_bytes(const void* site, const std::vector<Bytes>& parts, const Rank& src, const Group& group);
void send_bytes(const void* site, const Bytes& bytes, const Rank& dst, const Group& group);
/// Returns the sender's rank of the default group.
int recv_bytes(const void* site, Bytes& bytes, const std::optional<Rank>& src, const Group& group);

void check_object_list(const char* function, const char* name, size_t size, size_t expected);
/// Whether this rank is `rank`. Throws ArgumentError as the collective would.
bool is_this_rank(const char* function, const char* name, const Rank& rank, const Group& group);
size_t group_size(const char* function, const Group& group);
[[noreturn]] void throw_unwritable(const char* function, const char* what);
[[noreturn]] void throw_unreadable(const char* function, const char* what);

template <typename T>
Bytes to_bytes(const char* function, const T& value) {
  try {
    return nlohmann::json::to_cbor(nlohmann::json(value));
  } catch (const nlohmann::json::exception& error) {
    throw_unwritable(function, error.what());
  }
}
template <typename T>
T from_bytes(const char* function, const Bytes& bytes) {
  try {
    return nlohmann::json::from_cbor(bytes).template get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw_unreadable(function, error.what());
  }
}
template <typename T>
std::vector<T> from_bytes_list(const char* function, const std::vector<Bytes>& list) {
  std::vector<T> values;
  for (const Bytes& bytes : list) values.push_back(from_bytes<T>(function, bytes));
  return values;
}
}  // namespace detail

// These templates are never inlined, so that their return address is the caller's line.

/// Returns the values of all ranks, by group rank.
template <typename T>
[[gnu::noinline]] std::vector<T> all_gather_object(const T& object, const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  return detail::from_bytes_list<T>(
      "all_gather_object", detail::all_gather_bytes(site, detail::to_bytes("all_gather_object", object), group));
}
/// Writes the values of all ranks into a list with one element for each rank of the group.
template <typename T>
[[gnu::noinline]] void all_gather_object(std::vector<T>& object_list, const T& object, const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  detail::check_object_list("all_gather_object", "object_list", object_list.size(),
                            detail::group_size("all_gather_object", group));
  object_list = detail::from_bytes_list<T>(
      "all_gather_object", detail::all_gather_bytes(site, detail::to_bytes("all_gather_object", object), group));
}

/// Returns the values of all ranks on `dst`, and an empty list elsewhere.
template <typename T>
[[gnu::noinline]] std::vector<T> gather_object(const T& object, const Rank& dst = 0, const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  return detail::from_bytes_list<T>("gather_object",
                                    detail::gather_bytes(site, detail::to_bytes("gather_object", object), dst, group));
}
/// Writes the values of all ranks into a list, which has one element for each rank on `dst` and is empty elsewhere.
template <typename T>
[[gnu::noinline]] void gather_object(const T& object, std::vector<T>& object_gather_list, const Rank& dst = 0,
                                     const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  detail::check_object_list(
      "gather_object", "object_gather_list", object_gather_list.size(),
      detail::is_this_rank("gather_object", "dst", dst, group) ? detail::group_size("gather_object", group) : 0);
  object_gather_list = detail::from_bytes_list<T>(
      "gather_object", detail::gather_bytes(site, detail::to_bytes("gather_object", object), dst, group));
}

/// Every rank's list becomes that of rank `src`, which has the same length.
template <typename T>
[[gnu::noinline]] void broadcast_object_list(std::vector<T>& object_list, const Rank& src = 0,
                                             const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  const auto bytes = detail::broadcast_bytes(site, detail::to_bytes("broadcast_object_list", object_list), src, group);
  auto list = detail::from_bytes<std::vector<T>>("broadcast_object_list", bytes);
  detail::check_object_list("broadcast_object_list", "object_list", object_list.size(), list.size());
  object_list = std::move(list);
}

/// The first element of `scatter_object_output_list` (of one or more) becomes element [group rank] of rank `src`'s
/// `scatter_object_input_list`, which has one for each rank of the group; elsewhere it is not read.
template <typename T>
[[gnu::noinline]] void scatter_object_list(std::vector<T>& scatter_object_output_list,
                                           const std::vector<T>& scatter_object_input_list = {}, const Rank& src = 0,
                                           const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  if (scatter_object_output_list.empty())
    detail::check_object_list("scatter_object_list", "scatter_object_output_list", 0, 1);
  std::vector<detail::Bytes> parts;
  if (detail::is_this_rank("scatter_object_list", "src", src, group)) {
    detail::check_object_list("scatter_object_list", "scatter_object_input_list", scatter_object_input_list.size(),
                              detail::group_size("scatter_object_list", group));
    for (const T& each : scatter_object_input_list) parts.push_back(detail::to_bytes("scatter_object_list", each));
  }
  scatter_object_output_list[0] =
      detail::from_bytes<T>("scatter_object_list", detail::scatter_bytes(site, parts, src, group));
}

/// Sends to one rank, which calls recv_object_list; no other rank takes part.
template <typename T>
[[gnu::noinline]] void send_object_list(const std::vector<T>& object_list, const Rank& dst, const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  detail::send_bytes(site, detail::to_bytes("send_object_list", object_list), dst, group);
}
/// `object_list`, as long as the sender's, becomes the sender's. Returns the sender's rank of the default group.
/// Without `src`, the list may come from any rank.
template <typename T>
[[gnu::noinline]] int recv_object_list(std::vector<T>& object_list, const std::optional<Rank>& src = std::nullopt,
                                       const Group& group = {}) {
  const void* site = __builtin_return_address(0);
  detail::Bytes bytes;
  const int sender = detail::recv_bytes(site, bytes, src, group);
  auto list = detail::from_bytes<std::vector<T>>("recv_object_list", bytes);
  detail::check_object_list("recv_object_list", "object_list", object_list.size(), list.size());
  object_list = std::move(list);
  return sender;
}

}  // namespace lockstep::dist
