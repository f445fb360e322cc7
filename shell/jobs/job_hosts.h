// The machines besides this one on which ranks of a job that is attached to may run, each seen through its relay.
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
  /// Starts the relays, through which ranks come to the hub of the path `hub`, and waits until each answers, 15 s at
  /// most. Throws StartError where none does, and tells `warning` of those that do not.
  JobHosts(EventLoop& loop, const std::vector<Host>& hosts, const std::string& program, const std::string& hub,
           std::function<void(const std::string&)> warning);

  ~JobHosts();
  JobHosts(const JobHosts&) = delete;
  JobHosts& operator=(const JobHosts&) = delete;

  /// The ranks of this user there that run, of any job.
  std::vector<JobMember> ranks() const;

  /// A rank has come, or says something else of itself.
  std::function<void()> changed;
  /// The process of a rank has ended.
  std::function<void(const JobMember&, const SeenEnd&)> ended;

 private:
  void on_change(const RemoteHost& host);

  std::function<void(const std::string&)> warning_;
  std::map<std::pair<const RankProxy*, int64_t>, JobMember> ranks_;  // by process
  std::vector<std::shared_ptr<RemoteHost>> hosts_;
  std::set<const RemoteHost*> silent_;  // of which it was told
};

}  // namespace lockstep::shell
