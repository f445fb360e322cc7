// Identifies a process and its machine, so that a living peer is distinguished from a dead one and from a later process
// with the same pid.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::dist {

/// Returns field 22 of /proc/PID/stat (clock ticks since boot); nothing when there is no such process, or a zombie.
std::optional<uint64_t> process_start_time(pid_t pid);

/// Returns a text that is equal for two processes exactly when they share a kernel and a pid namespace, so that pids
/// and /proc paths mean the same.
std::string machine_identity();

/// Returns a text that is equal for two processes exactly when they share a kernel and a network namespace, so that
/// 127.0.0.1 means the same.
std::string network_identity();

}  // namespace lockstep::dist
