// The machines besides this one on which ranks of an attached job may run, each seen through its relay.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "shell/hosts/host.h"
#include "shell/jobs/remote_host.h"

namespace lockstep::shell {

class JobHosts {
 public:
  /// Starts the relays, through which ranks connect to the hub of the path `hub`, and waits until each answers, 15 s at
  /// most. Throws StartError where none does; otherwise calls `warning` for those that do not.
  JobHosts(EventLoop& loop, const std::vector<Host>& hosts, const std::string& program, const std::string& hub,
           std::function<void(const std::string&)> warning);

  ~JobHosts();
  JobHosts(const JobHosts&) = delete;
  JobHosts& operator=(const JobHosts&) = delete;

  /// Returns the ranks of this user that run there, of any job.
  std::vector<JobMember> ranks() const;

  /// Called when a rank has come, or describes itself otherwise than before.
  std::function<void()> changed;
  /// Called when the process of a rank has ended.
  std::function<void(const JobMember&, const SeenEnd&)> ended;

 private:
  void on_change(const RemoteHost& host);

  std::function<void(const std::string&)> warning_;
  std::map<std::pair<const RankProxy*, int64_t>, JobMember> ranks_;  // by process
  std::vector<std::shared_ptr<RemoteHost>> hosts_;
  std::set<const RemoteHost*> silent_;  // machines of whose silence there was a warning
};

}  // namespace lockstep::shell
