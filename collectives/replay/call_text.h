// What a recorder keeps of a call in JSON, and a player compares: the operation as the log has it, and the tensors.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "collectives/replay/seen_transport.h"

namespace lockstep::dist {

/// The name of a call that is an exchange of inspectors. What a rank sends in it is not compared: it has times.
inline constexpr const char* kExchange = "inspection";

/// The name of a record that the session has connected the ranks anew, and the group that such records belong to.
inline constexpr const char* kRegroup = "regroup";

/// What two calls that send the same have in common, and some statistics for messages. As an object in JSON; null: the
/// tensors can't be read.
using SentText = std::function<nlohmann::json(const std::vector<at::Tensor>& tensors)>;

/// Returns {"name", "group", "op", "seq", "place", "sent", "received", "unsupported"}: `op` as "all_reduce float32 [3] SUM", `place`
/// as "train.py:31 in step". The last one only for tensors that are not recorded, with the reason. `log` may be null.
nlohmann::json call_text(const TransportCall& call, const std::string& group, const CollectiveLog* log,
                         const SentText& sent);

/// Returns "all_reduce float32 [3] SUM, #12 of group 0 (train.py:31 in step)".
std::string words_of_call(const nlohmann::json& call);

/// Returns [{"dtype", "shape"}, …], and for sparse tensors the parts.
nlohmann::json tensors_text(const std::vector<at::Tensor>& tensors);

/// Returns contiguous tensors of the CPU with the values of `tensors`.
std::vector<at::Tensor> readable(const std::vector<at::Tensor>& tensors);
/// The bytes of `tensors`, which are contiguous and of the CPU.
std::vector<std::string_view> bytes_of(const std::vector<at::Tensor>& tensors);

/// Writes the bytes of a payload into `tensors`, whose dtypes and shapes the record has. Throws Error where they do not fit.
void fill(const std::vector<at::Tensor>& tensors, const nlohmann::json& recorded, std::string_view payload);

}  // namespace lockstep::dist
