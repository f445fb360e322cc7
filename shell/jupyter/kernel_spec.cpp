#include "shell/jupyter/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/events/base64.h"
#include "shell/jupyter/connection_file.h"
#include "shell/jupyter/logo.h"

namespace lockstep::shell::jupyter {
namespace {

namespace fs = std::filesystem;

void write_file(const fs::path& path, const std::string& bytes) {
  if (const int error = protocol::replace_file(path, bytes, 0666))
    throw StartError(fmt::format("cannot write {}: {}", path.string(), std::strerror(error)));
}

bool is_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

}  // namespace

std::string kernels_folder_of_user() { return data_folder() + "/kernels"; }

std::string kernels_folder_under(const std::string& prefix) {
  return (fs::absolute(prefix) / "share/jupyter/kernels").lexically_normal().string();
}

std::string install_kernel(const std::string& folder, const KernelSpec& spec) {
  if (!is_name(spec.name))
    throw UsageError(fmt::format("--name {}: a kernel's name has letters, digits, '.', '_' and '-'", spec.name));
  std::error_code error;
  const fs::path path = fs::path(folder) / spec.name;
  fs::create_directories(path, error);
  if (error)
    throw StartError(
        fmt::format("cannot make {}: {}; --user or --prefix DIR installs elsewhere", path.string(), error.message()));
  nlohmann::json command = {fs::read_symlink("/proc/self/exe").string(), "kernel", "run", "-f", "{connection_file}"};
  for (const std::string& option : spec.options) command.push_back(option);
  nlohmann::json environment = nlohmann::json::object();
  // What this command was found with, the kernel is: Jupyter may start it from another shell.
  for (const char* name : {"LOCKSTEP_LIBTORCH", "LOCKSTEP_BIN", "LOCKSTEP_HOME", "LOCKSTEP_PYTHON"})
    if (const char* value = std::getenv(name); value && *value) environment[name] = value;
  const nlohmann::json kernel = {{"argv", std::move(command)},
                                 {"display_name", spec.display_name},
                                 {"language", spec.is_python ? "python" : "c++20"},
                                 {"interrupt_mode", "message"},
                                 {"env", std::move(environment)},
                                 {"metadata", {{"debugger", false}}}};
  write_file(path / "logo-32x32.png", from_base64(kLogo32));
  write_file(path / "logo-64x64.png", from_base64(kLogo64));
  write_file(path / "logo-svg.svg", kLogoSvg);
  write_file(path / "kernel.json", kernel.dump(1) + "\n");
  return path.string();
}

}  // namespace lockstep::shell::jupyter
