// Sets variables of the environment that ProcessGroupNCCL and NCCL read, so that a process can be aborted and goes on
// after an error. By default LibTorch's watchdog ends the process instead.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::dist {

struct NcclVariable {
  const char* name;
  const char* value;
  const char* why;  // what the value prevents, for a note where the user has set another
};

/// These are read before the first communicator is made. `loopback` adds those for ranks that are all on this machine.
std::vector<NcclVariable> nccl_variables(bool loopback);

struct NcclEnvironment {
  std::map<std::string, std::string> set;  // what has no value yet
  std::vector<std::string> notes;  // where the user's value differs: it stays, and this is what follows
};
/// `lookup` is std::getenv or a stand-in.
NcclEnvironment choose_nccl_environment(const std::function<const char*(const char*)>& lookup, bool loopback);

/// Sets the variables of this process that have no value; writes a line on the standard error for each that has
/// another. Called once, before there are communicators.
void set_nccl_environment(bool loopback);

}  // namespace lockstep::dist
