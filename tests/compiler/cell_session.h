// A session for tests of the compiler: the real lockstep-compiler, and one process per rank that loads its objects.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "protocol/pipe_channel.h"

namespace lockstep::compiler_test {

/// A program at the other end of a channel. Ends with its owner.
class Program {
 public:
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment);
  ~Program();
  Program(const Program&) = delete;
  void send(const nlohmann::json& header) { protocol::send_message(fd_, {header, {}}); }
  /// Throws ChannelError when the program is gone.
  protocol::PipeMessage receive();
  void close();
  pid_t pid() const { return pid_; }
  /// Waits for the end; the exit code, or -SIGNAL.
  int wait();

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
};

struct SessionSettings {
  int ranks = 1;
  std::map<std::string, std::string> environment;  // of the compiler
  std::vector<std::string> include_dirs;
  int memory_limit_mb = 0;  // of one request; 0: none
  bool hosts = true;  // false: nothing is loaded
};

struct CellOutcome {
  protocol::Compiled compiled;
  std::vector<std::string> frames;
  std::map<int, std::string> output;  // rank → what it printed, values as "=> value"
  std::map<int, std::string> error;   // rank → "TYPE: message" of what was thrown
  std::map<int, int64_t> steps_done;
  std::string problem;                // why an object could not be loaded

  bool ok() const { return compiled.status == CompileStatus::ok && problem.empty(); }
  /// What all ranks printed and threw, when they agree; otherwise each rank's, marked.
  std::string text() const;
};

class CellSession {
 public:
  explicit CellSession(SessionSettings settings = {});
  ~CellSession();

  /// Compiles, loads, runs, settles.
  CellOutcome run(const std::string& text) { return run(text, protocol::Compile()); }
  CellOutcome run(const std::string& text, const RankSet& ranks);
  CellOutcome run(const std::string& text, protocol::Compile request);
  /// Compiles only; the next request rolls it back.
  CellOutcome compile(const std::string& text, protocol::Compile request = {});

  protocol::CompilerResponse ask(const protocol::CompilerRequest& request);
  void send(const protocol::CompilerRequest& request);
  std::pair<protocol::CompilerResponse, std::vector<std::string>> receive();
  nlohmann::json tell_host(int rank, const nlohmann::json& request);

  const protocol::CompilerReady& ready() const { return ready_; }
  const std::string& failure() const { return failure_; }  // of the start; empty when it is ready
  const std::string& directory() const { return directory_; }
  Program& compiler() { return *compiler_; }
  /// Returns the state processes of the compiler: the newest state, copies of it that wait, and one that practises.
  std::vector<pid_t> states() const;
  int64_t cells() const { return cell_; }

 private:
  SessionSettings settings_;
  std::string directory_;
  std::unique_ptr<Program> compiler_;
  std::vector<std::unique_ptr<Program>> hosts_;
  protocol::CompilerReady ready_;
  std::string failure_;
  int64_t cell_ = 0;
};

}  // namespace lockstep::compiler_test
