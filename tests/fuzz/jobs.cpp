// What a shell learns of a Python job: the files in the job's folder, the requests and answers of agents, the launcher's
// report, the findings of its ranks, what py-spy prints, and lists of its hosts.
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inspectors/evidence/evidence_json.h"
#include "inspectors/remains/judge.h"
#include "protocol/error.h"
#include "python/agent/server.h"
#include "shell/hosts/host.h"
#include "shell/hosts/mpi_hosts.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_findings.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_logs.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/rank_ends.h"
#include "shell/look/py_spy.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

void agent_request(std::string_view bytes) {
  const nlohmann::json request = agent::read_request(bytes);
  if (request.is_null()) return;
  check(request.at("request").is_string(), "a request has a name");
  (void)nlohmann::json(request);  // as for the agent's second thread
}

/// An answer to any request.
void agent_answer(std::string_view bytes) {
  const shell::AgentAnswer answer = shell::read_agent_answer(bytes);
  check(answer.body.is_object() == answer.error.empty(), "an answer says why it has no body");
  if (!answer.error.empty()) return;
  inspect::Remains remains;
  try {
    const auto frames = shell::main_frames(0, answer.body);
    remains.doing.push_back(shell::doing_of(0, answer.body, frames));
  } catch (const nlohmann::json::exception&) {
  }
  try {
    for (const nlohmann::json& each : answer.body.value("logs", nlohmann::json::array()))
      shell::add_rank_log(each.get<inspect::Evidence>(), remains);
  } catch (const nlohmann::json::exception&) {
  }
  inspect::judge(remains);
}

/// The files job.json, rank-0.json, judge.json and verdict.json, with form feeds between them.
void job_folder(std::string_view bytes) {
  static const shell::JobFolder job = [] {
    ::setenv("XDG_RUNTIME_DIR", folder().c_str(), 1);
    return shell::JobFolder({"torchrun"});
  }();
  check(job.path().starts_with(folder() + "/"), "the job is in the folder for temporary files");
  for (const char* name : {"job.json", "rank-0.json", "judge.json", "verdict.json"}) {
    const size_t end = std::min(bytes.find('\f'), bytes.size());
    written(job.path().substr(folder().size() + 1) + "/" + name, bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  const shell::Job read = job.read();
  check(read.ranks.size() <= 1 && read.world_size() <= protocol::kMostRanks, "a job has its ranks");
  for (const int number : {0, 1, protocol::kMostRanks}) read.absence_of(number);
  read.live_ranks();
  if (const shell::JobMember* rank = read.rank(0); rank && rank->facts.end) {
    inspect::Remains remains;
    shell::add_end({.rank = 0, .said = rank->facts.end}, remains);
    inspect::judge(remains);
  }
  job.judge();
  job.verdict();
}

void launcher_report(std::string_view bytes) {
  written("launcher.json", bytes);
  inspect::Remains remains;
  for (const shell::SeenEnd& each : shell::read_launcher_report(folder())) {
    shell::add_end(each, remains);
    each.exit(/*is_here=*/false);
  }
  inspect::judge(remains);
}

void findings_file(std::string_view bytes) {
  const std::string path = written("findings", bytes);
  check(shell::faults_of_inspectors_in(path, 0) >=
            shell::faults_of_inspectors_in(path, static_cast<int64_t>(bytes.size())),
        "findings are counted from where a file was");
}

void py_spy(std::string_view bytes) {
  try {
    shell::read_py_spy(std::string(bytes));
  } catch (const nlohmann::json::exception&) {
  }
}

/// As --hosts has it, as a file of mpirun, and as Open MPI's daemons are given it.
void host_lists(std::string_view bytes) {
  const std::string text(bytes.substr(0, bytes.find('\0')));
  for (const auto& read :
       std::vector<std::function<void()>>{[&] { shell::ssh_hosts(text); }, [&] { shell::kubectl_hosts(text); },
                                          [&] { shell::mpi_hosts({"mpirun", "--hostfile", written("hosts", bytes)}); },
                                          [&] {
                                            ::setenv("OMPI_MCA_orte_node_regex", text.c_str(), 1);
                                            shell::hosts_of_mpi_place();
                                          }}) {
    try {
      read();
    } catch (const UsageError&) {
    }
  }
}

const AddTarget kHostLists("host_lists", host_lists), kAgentRequest("agent_request", agent_request),
    kAgentAnswer("agent_answer", agent_answer), kJobFolder("job_folder", job_folder),
    kLauncherReport("launcher_report", launcher_report), kFindingsFile("findings_file", findings_file),
    kPySpy("py_spy", py_spy);

}  // namespace
}  // namespace lockstep::fuzz
