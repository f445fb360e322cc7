#include "shell/jupyter/connection_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

std::string text_field(const json& file, const char* name, const std::string& path, const std::string& absent) {
  const auto found = file.find(name);
  if (found == file.end()) return absent;
  if (!found->is_string()) throw UsageError(fmt::format("connection file {}: \"{}\" is no text", path, name));
  return found->get<std::string>();
}

int port_field(const json& file, const char* name, const std::string& path) {
  const auto found = file.find(name);
  if (found == file.end()) throw UsageError(fmt::format("connection file {} lacks \"{}\"", path, name));
  if (!found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > 65535)
    throw UsageError(fmt::format("connection file {}: \"{}\" is no port (0 to 65535)", path, name));
  return found->get<int>();
}

}  // namespace

std::string ConnectionFile::endpoint(int port) const {
  if (transport == "ipc") return fmt::format("ipc://{}-{}", ip, port);
  return fmt::format("tcp://{}:{}", ip, port == 0 ? "*" : std::to_string(port));
}

ConnectionFile read_connection_file(const std::string& path) {
  const auto text = protocol::read_file(path);
  if (!text) throw UsageError(fmt::format("cannot read the connection file {}: {}", path, std::strerror(errno)));
  const json file = protocol::read_json(*text);
  if (!file.is_object()) throw UsageError(fmt::format("connection file {} is no JSON object", path));
  ConnectionFile result;
  result.transport = text_field(file, "transport", path, "tcp");
  if (result.transport != "tcp" && result.transport != "ipc")
    throw UsageError(
        fmt::format("connection file {}: transport \"{}\" is neither tcp nor ipc", path, result.transport));
  result.ip = text_field(file, "ip", path, "127.0.0.1");
  result.key = text_field(file, "key", path, "");
  result.kernel_name = text_field(file, "kernel_name", path, "");
  const std::string scheme = text_field(file, "signature_scheme", path, "hmac-sha256");
  if (scheme != "hmac-sha256")
    throw UsageError(
        fmt::format("connection file {}: signature scheme \"{}\"; this kernel knows hmac-sha256 only", path, scheme));
  // Rule 11: without a key everyone who reaches the port could run code.
  if (result.key.empty())
    throw UsageError(
        fmt::format("connection file {} has no key, so anybody could send cells to this kernel: start it "
                    "through Jupyter with a key (Session.key is not to be empty)",
                    path));
  result.shell_port = port_field(file, "shell_port", path);
  result.iopub_port = port_field(file, "iopub_port", path);
  result.stdin_port = port_field(file, "stdin_port", path);
  result.control_port = port_field(file, "control_port", path);
  result.hb_port = port_field(file, "hb_port", path);
  return result;
}

void write_connection_file(const std::string& path, const ConnectionFile& connection) {
  const std::string text = json{{"transport", connection.transport},
                                {"ip", connection.ip},
                                {"key", connection.key},
                                {"signature_scheme", "hmac-sha256"},
                                {"kernel_name", connection.kernel_name},
                                {"shell_port", connection.shell_port},
                                {"iopub_port", connection.iopub_port},
                                {"stdin_port", connection.stdin_port},
                                {"control_port", connection.control_port},
                                {"hb_port", connection.hb_port}}
                               .dump(2) +
                           "\n";
  if (const int error = protocol::replace_file(path, text, 0600))
    throw StartError(fmt::format("cannot write the connection file {}: {}", path, std::strerror(error)));
}

std::string data_folder() {
  if (const std::string folder = protocol::variable("JUPYTER_DATA_DIR"); !folder.empty()) return folder;
  if (const std::string folder = protocol::variable("XDG_DATA_HOME"); !folder.empty()) return folder + "/jupyter";
  const std::string home = protocol::variable("HOME");
  if (home.empty())
    throw StartError("there is no HOME, so Jupyter's folder of this user is not known: set JUPYTER_DATA_DIR");
  return home + "/.local/share/jupyter";
}

std::string connection_folder() {
  if (const std::string folder = protocol::variable("JUPYTER_RUNTIME_DIR"); !folder.empty()) return folder;
  return data_folder() + "/runtime";
}

OwnConnectionFile::OwnConnectionFile(ConnectionFile& connection) {
  std::error_code error;
  const std::string folder = connection_folder();
  std::filesystem::create_directories(folder, error);
  if (error) throw StartError(fmt::format("cannot make {}: {}", folder, error.message()));
  path_ = fmt::format("{}/kernel-{}.json", folder, ::getpid());
  connection.key = random_key();
}

OwnConnectionFile::~OwnConnectionFile() { ::unlink(path_.c_str()); }

KernelConnection::KernelConnection(const std::string& path) : path_(path) {
  if (path.empty())
    path_ = own_.emplace(file_).path();
  else
    file_ = read_connection_file(path);
  has_ports_ = file_.shell_port && file_.iopub_port && file_.stdin_port && file_.control_port && file_.hb_port;
}

void KernelConnection::announce() const {
  if (!has_ports_) write_connection_file(path_, file_);
  if (own_)
    std::fprintf(stderr, "lockstep kernel: jupyter console --existing %s connects to it; Ctrl-\\ ends it\n",
                 std::filesystem::path(path_).filename().c_str());
}

}  // namespace lockstep::shell::jupyter
