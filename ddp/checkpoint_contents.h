// What the file of a checkpoint (ddp/checkpoint.h) has beside tensors: the list of its names, and plain values. LibTorch
// reads the file itself, and is not made for files of strangers.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::ddp::detail {

inline constexpr int kCheckpointVersion = 2;  // of the form of the files

/// Reads the list. `checksum` is that of the file. Throws std::runtime_error for other bytes than were written.
nlohmann::json read_checkpoint_list(const std::string& text, const std::string& checksum);

/// Returns why the list of the file at `path` is not that of a checkpoint of `ranks` ranks; empty where it is. Then "names"
/// and "generators" are objects, and "id" is a number. Throws nlohmann::json::exception for what no write() has made.
std::string problem_of_checkpoint_list(const nlohmann::json& list, const std::string& path, int ranks);

/// Reads a plain value, in CBOR. Throws nlohmann::json::exception.
nlohmann::json read_plain_value(const std::string& bytes);

}  // namespace lockstep::ddp::detail
