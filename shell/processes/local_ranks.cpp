#include "shell/processes/local_ranks.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace lockstep::shell {
namespace {

constexpr const char* kRoomForRank = "-000000000";  // worker/rank_copies.cpp writes the number there

}  // namespace

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

bool LocalRanks::can_be_copies() const {
  return !rehearsal_ && order_.count == order_.world_size && std::ranges::count(plan_.devices, "cpu") == order_.count;
}

void LocalRanks::start(const StartRanks& order, Listener listener) {
  order_ = order;
  listener_ = std::move(listener);
  // Where the store of the session is elsewhere, the process keeps the ranks' process groups.
  store_ = std::make_unique<StoreProcess>(loop_, directory_, address_,
                                          [this](const std::string& how, const std::string& last_lines) {
                                            if (!ending_) listener_.store_ended(how, last_lines);
                                          });
  if (order_.store.empty()) order_.store = store_->address();
  for (int rank = order_.first; rank < order_.first + order_.count; ++rank) add_process(rank);
  if (!can_be_copies()) return start_others_alone();
  make_starter();
  starter_->start(store_->copy_order());
}

void LocalRanks::make_starter() {
  Launch launch = this->launch();
  launch.environment["LOCKSTEP_SESSION_DIR"] = directory_.path();
  launch.environment["LOCKSTEP_RANK"] = kRoomForRank;
  starter_ = std::make_unique<RankStarter>(
      loop_, launch,
      RankStarter::Listener{.started =
                                [this](int rank, std::unique_ptr<Child> child) {
                                  if (rank != protocol::Copied::kStore) return has_started(rank, std::move(child));
                                  store_->has_started(std::move(child));
                                  order_copies();
                                },
                            .failed = [this](const std::optional<ProcessEnd>& end) { starter_failed(end); }});
}

void LocalRanks::starter_failed(const std::optional<ProcessEnd>& end) {
  if (ending_) return;
  if (!end || end->signal != 0)
    listener_.warning("the process that ranks are copies of " +
                      (end ? words_of(*end) : "gave no answer, and was killed") +
                      ": a rank that starts from now on loads LibTorch itself");
  if (are_started_) return;  // restart() looks by itself
  try {
    start_others_alone();
  } catch (const StartError& error) {
    listener_.failed(error.what());
  }
}

std::map<std::string, std::string> LocalRanks::environment(int rank, int64_t generation) const {
  const int here = rank - order_.first;
  std::map<std::string, std::string> all = {{"LOCKSTEP_RANK", std::to_string(rank)},
                                            {"LOCKSTEP_IDENTITY", order_.identities.at(static_cast<size_t>(here))},
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
                                            {"LOCKSTEP_ARGUMENTS", nlohmann::json(order_.arguments).dump()}};
  all.merge(device_environment(plan_, here));
  all.insert(environment_.begin(), environment_.end());
  return all;
}

void LocalRanks::add_process(int rank) {
  directory_.add_rank(rank);
  Process& process = processes_[rank];
  process.tail = std::make_unique<OutputTail>();
  process.output = std::make_unique<LastOutput>();
}

/// Orders all ranks, once the store has started, so that no rank runs without a store.
void LocalRanks::order_copies() {
  for (const auto& [rank, process] : processes_)
    if (starter_->works()) order_copy(rank, 0);
}

void LocalRanks::order_copy(int rank, int64_t generation) {
  const Process& process = processes_.at(rank);
  starter_->start({.environment = environment(rank, generation),
                   .output = process.tail->write_end(),
                   .lifeline = lifeline_.read.get(),
                   .channels = process.output->channels()});
}

void LocalRanks::start_alone(int rank, int64_t generation) {
  const Process& process = processes_.at(rank);
  Launch launch = this->launch();
  launch.environment.merge(environment(rank, generation));
  launch.environment.insert({{"LOCKSTEP_OUTPUT_FDS", process.output->environment()},
                             {"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_.read.get())}});
  launch.inherit = process.output->descriptors();
  launch.inherit.push_back(lifeline_.read.get());
  launch.output = process.tail->write_end();
  has_started(rank, std::make_unique<Child>(launch));
}

void LocalRanks::start_others_alone() {
  if (!store_->is_started()) store_->start(launch());
  for (const auto& [rank, process] : processes_)
    if (!process.child) start_alone(rank, 0);
}

void LocalRanks::has_started(int rank, std::unique_ptr<Child> child) {
  Process& process = processes_.at(rank);
  process.child = std::move(child);
  process.tail->close_write_end();
  process.output->close_writing_ends();
  store_->rank_has_started(process.child->pid());
  if (process.is_unwanted) process.child->kill();
  OutputTail& tail = *process.tail;
  loop_.watch(tail.fd(), [this, &tail] {
    if (!tail.take()) loop_.forget(tail.fd());
  });
  loop_.watch(process.child->pidfd(), [this, rank] { ended(rank); });
  tell_started();
}

void LocalRanks::tell_started() {
  if (are_started_) return;
  RanksStarted started{.store = order_.store, .backend = plan_.backend, .devices = plan_.devices};
  for (const auto& [number, each] : processes_) {
    if (!each.child) return;  // it comes
    started.pids.push_back(each.child->pid());
    started.start_times.push_back(each.child->start_time());
  }
  are_started_ = true;
  listener_.started(started);
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
  const auto kills = memory_kills_.rise();
  if (end.signal == SIGKILL && kills) return end.str() + out_of_memory_words(kills->of_machine);
  return end.str() + load_failure_words(end);
}

void LocalRanks::grow(const SessionPlan& plan) {
  plan_ = plan;
  order_.grow(plan.world_size);
}

RankProcess LocalRanks::restart(int rank, const std::string& identity, int64_t generation) {
  Process& process = processes_[rank];
  if (process.tail) loop_.forget(process.tail->fd());
  process = {};
  directory_.set_rank_aside(rank);
  order_.identities.at(static_cast<size_t>(rank - order_.first)) = identity;
  add_process(rank);
  if (starter_ && starter_->works()) {
    order_copy(rank, generation);
    loop_.run_until([&] { return process.child || !starter_->works(); });
  }
  if (!process.child) start_alone(rank, generation);
  const Child& child = *process.child;
  return {.pid = child.pid(), .start_time = child.start_time()};
}

void LocalRanks::kill(int rank) {
  Process& process = processes_.at(rank);
  process.is_unwanted = true;
  if (process.child) process.child->kill();
}

std::string LocalRanks::last_lines(int rank) {
  const auto found = processes_.find(rank);
  return found == processes_.end() || !found->second.tail ? "" : found->second.tail->last_lines();
}

void LocalRanks::read_log(inspect::RankPicture& rank, const inspect::LogPart& part) {
  inspect::read_log(rank, directory_.rank_log(rank.rank), part);
}

}  // namespace lockstep::shell
