// Reads the file in which Jupyter names the five sockets of a kernel and the key that signs its messages.
#pragma once
#include <optional>
#include <string>

namespace lockstep::shell::jupyter {

struct ConnectionFile {
  std::string transport = "tcp";  // or "ipc"
  std::string ip = "127.0.0.1";  // of ipc: the beginning of the sockets' paths
  std::string key;  // of HMAC-SHA256
  std::string kernel_name;
  // 0: the system chooses one
  int shell_port = 0, iopub_port = 0, stdin_port = 0, control_port = 0, hb_port = 0;

  /// Returns the address of a socket: "tcp://127.0.0.1:41234", "tcp://127.0.0.1:*" for port 0, "ipc:///run/kernel-7-1".
  std::string endpoint(int port) const;
};

/// Throws UsageError that names the file: unreadable, not JSON, a field that is missing or out of range, a key that is
/// empty, another signature scheme than hmac-sha256.
ConnectionFile read_connection_file(const std::string& path);

/// Writes it for this user alone (mode 0600), at once. Throws StartError.
void write_connection_file(const std::string& path, const ConnectionFile& connection);

/// Returns where Jupyter looks for the files of running kernels: $JUPYTER_RUNTIME_DIR, or runtime/ in Jupyter's data
/// folder. Throws StartError where there is no home.
std::string connection_folder();

/// Keeps a connection file that the kernel makes itself, for as long as it runs.
class OwnConnectionFile {
 public:
  /// Makes the folder and gives `connection` a key. Throws StartError.
  explicit OwnConnectionFile(ConnectionFile& connection);
  ~OwnConnectionFile();
  OwnConnectionFile(const OwnConnectionFile&) = delete;
  OwnConnectionFile& operator=(const OwnConnectionFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The sockets of a kernel that runs: as the connection file `path` has them, or as a file that it makes, where `path` is
/// empty.
class KernelConnection {
 public:
  /// Throws UsageError, StartError.
  explicit KernelConnection(const std::string& path);
  ConnectionFile& file() { return file_; }
  /// Writes the ports that the system has chosen, and says how to connect to a file of its own. Throws StartError.
  void announce() const;

 private:
  ConnectionFile file_;
  std::optional<OwnConnectionFile> own_;
  std::string path_;
  bool has_ports_;
};

/// Returns Jupyter's data folder of this user: $JUPYTER_DATA_DIR, $XDG_DATA_HOME/jupyter, ~/.local/share/jupyter.
/// Throws StartError where there is no home.
std::string data_folder();

}  // namespace lockstep::shell::jupyter
