// The process that holds the TCPStore of a session and outlives its ranks. It also keeps the list of the ranks'
// processes: should the shell be killed, it ends them and what they have started.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "protocol/descriptor.h"
#include "protocol/rank_copy.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/session_directory.h"

namespace lockstep::shell {

inline constexpr const char* kLoopback = "127.0.0.1";

class StoreProcess {
 public:
  /// Opens the socket on which the store will take connections, on `address` only. `ended` is called once if the process
  /// ends, with how in words and what it wrote last, in lines. Throws StartError.
  StoreProcess(EventLoop& loop, const SessionDirectory& directory, const std::string& address,
               std::function<void(const std::string& how, const std::string& last_lines)> ended);
  /// Ends it, and all processes of the session that have left their groups.
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  /// Starts the process; returns at once. `launch` starts lockstep-worker. Throws StartError.
  void start(Launch launch);
  /// Or it is a copy of another process (rank_starter.h), which has_started() a little later.
  protocol::CopyOrder copy_order() const;
  void has_started(std::unique_ptr<Child> process);
  bool is_started() const { return static_cast<bool>(process_); }

  int port() const { return port_; }
  std::string address() const { return address_ + ":" + std::to_string(port_); }
  bool has_ended() const { return has_ended_; }
  void rank_has_started(pid_t pid) { tell(std::to_string(pid)); }
  /// The process of a rank has ended: what it has started ends, too, unless the session itself does.
  void rank_has_ended(int rank, pid_t pid, bool session_ends);

 private:
  void tell(const std::string& line);

  EventLoop& loop_;
  const std::string directory_, mark_, address_;
  const std::function<void(const std::string&, const std::string&)> ended_;
  int port_ = 0;
  Descriptor listener_;  // until the process has started
  Pipe keeper_line_;
  OutputTail tail_;
  std::unique_ptr<Child> process_;
  bool has_ended_ = false;
};

}  // namespace lockstep::shell
