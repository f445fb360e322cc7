// The private folder of one session: its socket, its description for `lockstep sessions`, the texts of its cells, a
// folder per rank.
//
//   $XDG_RUNTIME_DIR/lockstep/<id>/ (or /tmp/lockstep-<uid>-XXXXXX/<id>/), id = <pid>-<hex>, mode 0700
//     hub            socket of ZeroMQ
//     session.json
//     {"id","pid","start_time","started","ranks","backend","versions","workers":[{"rank","pid","start_time"}]}
//     cells/         cell_7.cpp, which line tables name
//     rank-R/        what that worker keeps
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::shell {

/// Returns where the shell, and the programs that it starts, are. Throws StartError where that folder has been removed.
std::string working_directory();

/// Returns an id for a session of this process: <pid>-<hex>.
std::string new_session_id();

class SessionDirectory {
 public:
  /// Makes that of the session `id`. Throws StartError: no space, no permission, a path too long for a socket.
  explicit SessionDirectory(std::string id = new_session_id());
  ~SessionDirectory();  // removes it
  SessionDirectory(const SessionDirectory&) = delete;
  SessionDirectory& operator=(const SessionDirectory&) = delete;

  const std::string& id() const { return id_; }
  const std::string& path() const { return path_; }
  std::string hub_path() const { return path_ + "/hub"; }
  std::string hub_endpoint() const { return "ipc://" + hub_path(); }

  /// Makes rank-R. Throws StartError.
  void add_rank(int rank);
  /// Gives rank-R another name, rank-R.1, and takes the log out of it: a core file of the process that had it needs the
  /// objects of the cells there, and another process takes the place of the rank.
  void set_rank_aside(int rank);
  /// Returns where a rank has its collective log.
  std::string rank_log(int rank) const { return path_ + "/rank-" + std::to_string(rank) + "/log"; }
  /// Writes session.json, the whole of it at once.
  void describe(nlohmann::json description);
  /// Writes cells/cell_N.cpp. Debuggers want it, cells do not: nothing is thrown where it can't be written.
  void write_cell(int64_t number, const std::string& source);

 private:
  std::string id_, path_;
};

}  // namespace lockstep::shell
