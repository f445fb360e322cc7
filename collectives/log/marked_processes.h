// Ends processes that a session's cells have started and that left its process groups: a program that calls setsid()
// and forks is nobody's child any more. The environment that it was started with says whose it is.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::dist {

/// Kills every process of this user whose environment at its start holds all of `marks` ("NAME=VALUE"), waits until
/// they are gone, and looks again until none is left. This process and those of `except` are left alone. A signal
/// reaches the process whose environment was read, or none. A program that was started with another environment (env -u
/// NAME) is not found. Returns how many there were.
int end_marked_processes(const std::vector<std::string>& marks, const std::vector<pid_t>& except = {});

}  // namespace lockstep::dist
