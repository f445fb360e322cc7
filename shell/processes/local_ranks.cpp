#include "shell/processes/local_ranks.h"

#include <csignal>
#include <utility>

namespace lockstep::shell {

LocalRanks::LocalRanks(EventLoop& loop, SessionPlan plan, SessionDirectory& directory, std::string hub_endpoint,
                       std::optional<Rehearsal> rehearsal, std::string address,
                       std::map<std::string, std::string> environment)
    : loop_(loop),
      plan_(std::move(plan)),
      directory_(directory),
      hub_endpoint_(std::move(hub_endpoint)),
      rehearsal_(std::move(rehearsal)),
      address_(std::move(address)),
      environment_(std::move(environment)),
      lifeline_(make_pipe()) {}

LocalRanks::~LocalRanks() {
  stop_watching();
  for (auto& [rank, process] : processes_)
    if (process.child) process.child->kill();
  processes_.clear();
}

void LocalRanks::stop_watching() {
  for (const auto& [rank, process] : processes_) {
    if (process.tail) loop_.forget(process.tail->fd());
    if (process.child) loop_.forget(process.child->pidfd());
  }
}

Launch LocalRanks::launch() const { return rehearsal_ ? rehearsal_launch(*rehearsal_) : worker_launch(); }

void LocalRanks::start(const StartRanks& order, Listener listener) {
  order_ = order;
  listener_ = std::move(listener);
  // Where the store of the session is elsewhere, the process keeps the ranks' process groups.
  store_ = std::make_unique<StoreProcess>(loop_, launch(), directory_, address_,
                                          [this](const std::string& how, const std::string& last_lines) {
                                            if (!ending_) listener_.store_ended(how, last_lines);
                                          });
  RanksStarted started{.store = order_.store.empty() ? store_->address() : order_.store,
                       .backend = plan_.backend,
                       .pids = {},
                       .start_times = {},
                       .devices = plan_.devices,
                       .folder = {},
                       .interpreter = {},
                       .interface = {}};
  order_.store = started.store;
  for (int rank = order_.first; rank < order_.first + order_.count; ++rank) {
    start_rank(rank);
    started.pids.push_back(processes_.at(rank).child->pid());
    started.start_times.push_back(processes_.at(rank).child->start_time());
  }
  listener_.started(started);
}

void LocalRanks::start_rank(int rank, int64_t generation) {
  const int here = rank - order_.first;
  directory_.add_rank(rank);
  Process& process = processes_[rank];
  process.tail = std::make_unique<OutputTail>();
  process.output = std::make_unique<LastOutput>();
  Launch launch = this->launch();
  launch.environment.insert({{"LOCKSTEP_RANK", std::to_string(rank)},
                             {"LOCKSTEP_IDENTITY", order_.identities.at(static_cast<size_t>(here))},
                             {"LOCKSTEP_OUTPUT_FDS", process.output->environment()},
                             {"LOCKSTEP_WORLD_SIZE", std::to_string(order_.world_size)},
                             {"LOCKSTEP_LOCAL_RANK", std::to_string(order_.local_first + here)},
                             {"LOCKSTEP_LOCAL_WORLD_SIZE", std::to_string(order_.local_size)},
                             {"LOCKSTEP_NODE_RANK", std::to_string(order_.node)},
                             {"LOCKSTEP_SESSION_DIR", directory_.path()},
                             {"LOCKSTEP_HUB", hub_endpoint_},
                             {"LOCKSTEP_STORE", order_.store},
                             {"LOCKSTEP_GENERATION", std::to_string(generation)},
                             {"LOCKSTEP_STORE_KEY", order_.store_key},
                             {"LOCKSTEP_BACKEND", plan_.backend},
                             {"LOCKSTEP_THREADS", std::to_string(plan_.threads)},
                             {"LOCKSTEP_CHECK_COLLECTIVES", order_.check_collectives ? "1" : "0"},
                             {"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_.read.get())},
                             {"LOCKSTEP_ARGUMENTS", nlohmann::json(order_.arguments).dump()}});
  launch.environment.merge(device_environment(plan_, here));
  launch.environment.insert(environment_.begin(), environment_.end());
  launch.inherit = process.output->descriptors();
  launch.inherit.push_back(lifeline_.read.get());
  launch.output = process.tail->write_end();
  process.child = std::make_unique<Child>(launch);
  process.tail->close_write_end();
  process.output->close_writing_ends();
  store_->rank_has_started(process.child->pid());
  OutputTail& tail = *process.tail;
  loop_.watch(tail.fd(), [this, &tail] {
    if (!tail.take()) loop_.forget(tail.fd());
  });
  loop_.watch(process.child->pidfd(), [this, rank] { ended(rank); });
}

void LocalRanks::ended(int rank) {
  Child& child = *processes_.at(rank).child;
  const auto end = child.ended();
  if (!end) return;
  loop_.forget(child.pidfd());
  // Its group is gone with it. What left the group goes, too; at the session's end all of them at once.
  store_->rank_has_ended(rank, child.pid(), ending_);
  listener_.ended(rank, {words_of(*end), end->signal, core_words(*end, child.pid())});
}

std::string LocalRanks::words_of(const ProcessEnd& end) {
  const auto kills = out_of_memory_kills();
  const bool is_out_of_memory = end.signal == SIGKILL && kills && memory_kills_ && kills->count > memory_kills_->count;
  memory_kills_ = kills;
  return end.str() + (is_out_of_memory ? out_of_memory_words(kills->of_machine) : "");
}

RankProcess LocalRanks::restart(int rank, const std::string& identity, int64_t generation) {
  Process& before = processes_.at(rank);
  if (before.tail) loop_.forget(before.tail->fd());
  before = {};
  directory_.set_rank_aside(rank);
  order_.identities.at(static_cast<size_t>(rank - order_.first)) = identity;
  start_rank(rank, generation);
  const Child& child = *processes_.at(rank).child;
  return {.pid = child.pid(), .start_time = child.start_time()};
}

void LocalRanks::kill(int rank) { processes_.at(rank).child->kill(); }

std::string LocalRanks::last_lines(int rank) {
  const auto found = processes_.find(rank);
  return found == processes_.end() || !found->second.tail ? "" : found->second.tail->last_lines();
}

void LocalRanks::read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) {
  for (inspect::RankPicture* each : ranks) inspect::read_log(*each, directory_.rank_log(each->rank), recent);
}

}  // namespace lockstep::shell
