// Where sessions and jobs of this user keep what exists only while they run: sockets, descriptions of processes.
//
//   $XDG_RUNTIME_DIR/lockstep/, or /tmp/lockstep-<uid>-XXXXXX/ where there is no such folder; mode 0700
#pragma once
#include <string>
#include <vector>

namespace lockstep::protocol {

/// What the path of a socket may have: sockaddr_un holds 107 characters and a zero.
inline constexpr size_t kLongestSocketPath = 107;

/// The folder that holds the folders of new sessions and jobs of this user; made if it is missing. Throws StartError
/// when it can't be made, or when another user can write to it.
std::string runtime_directory();

/// All folders that may hold sessions and jobs of this user and that are there: with and without XDG_RUNTIME_DIR they
/// differ.
std::vector<std::string> runtime_directories();

/// Why `path` is no private folder of this user; empty when it is one. One that others can only read is closed.
std::string private_folder_problem(const std::string& path);

}  // namespace lockstep::protocol
