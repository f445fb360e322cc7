// What a process runs in: the variables of its environment, its host, and its program.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace lockstep::protocol {

/// Returns the value of a variable; an empty text where it is not set.
inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// Returns an empty text where the host has no name.
inline std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// Returns the path of the program that this process runs; an empty text where it can't be read.
inline std::string own_program() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return {path, size > 0 ? static_cast<size_t>(size) : 0};
}

}  // namespace lockstep::protocol
