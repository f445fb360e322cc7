// Sessions and jobs of this user keep here what exists only while they run: sockets, descriptions of processes.
//
//   $XDG_RUNTIME_DIR/lockstep/, or /tmp/lockstep-<uid>-XXXXXX/ where there is no such folder; mode 0700
#pragma once
#include <string>
#include <vector>

namespace lockstep::protocol {

/// The path of a socket is this long at most: sockaddr_un holds 107 characters and a zero.
inline constexpr size_t kLongestSocketPath = 107;

/// Returns the folder that holds the folders of new sessions and jobs of this user, and makes it if it is missing.
/// Throws StartError when it can't be made, or when another user can write to it.
std::string runtime_directory();

/// Returns all folders that may hold sessions and jobs of this user and that are there: with and without
/// XDG_RUNTIME_DIR they differ.
std::vector<std::string> runtime_directories();

/// Returns why `path` is no private folder of this user, or nothing. A folder that others can only read is closed.
std::string private_folder_problem(const std::string& path);

}  // namespace lockstep::protocol
