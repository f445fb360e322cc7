// Makes the folder by which Jupyter finds a kernel: kernel.json, which names the command that starts it, and logos.
#pragma once
#include <string>
#include <vector>

namespace lockstep::shell::jupyter {

struct KernelSpec {
  bool is_python = false;  // what its cells are
  std::string name;  // of the folder, as `jupyter --kernel NAME` has it
  std::string display_name;
  std::vector<std::string> options;  // of the session: "--num-processes=4"
};

/// Returns where a kernel is installed: for this user, or under a prefix (/usr/local, a virtual environment).
std::string kernels_folder_of_user();
std::string kernels_folder_under(const std::string& prefix);

/// Writes FOLDER/NAME and returns its path. What was there under that name is replaced. Throws UsageError for a name
/// that Jupyter does not take (letters, digits, . _ -), StartError where it can't be written.
std::string install_kernel(const std::string& folder, const KernelSpec& spec);

}  // namespace lockstep::shell::jupyter
