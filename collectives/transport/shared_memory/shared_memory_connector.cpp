#include "collectives/transport/shared_memory/shared_memory_connector.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "collectives/log/death_watch.h"
#include "collectives/log/process_identity.h"
#include "collectives/transport/shared_memory/shared_memory_backend.h"
#include "collectives/transport/shared_memory/shared_region.h"
#include "protocol/dist_error.h"
#include "protocol/read_json.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {

class SharedMemoryConnector : public BackendConnector {
 public:
  SharedMemoryConnector(const GroupDescription& group, std::unique_ptr<BackendConnector> gloo)
      : group_(group), gloo_(std::move(gloo)) {}
  ~SharedMemoryConnector() override { leave(); }

  std::string announcement() override {
    json own = {{"gloo", gloo_->announcement()},
                {"machine", machine_identity()},
                {"pid", getpid()},
                {"start", process_start_time(getpid()).value_or(0)}};
    if (group_.group_rank == 0 && size() > 1 && size() <= SharedRegion::kMostRanks) {
      try {
        made_ = SharedRegion::make(0, size());
        own["memory"] = made_->address();
      } catch (const Error& error) {  // the ranks use Gloo
        own["problem"] = error.what();
      }
    }
    return own.dump();
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<std::string>& peers,
                                            std::chrono::milliseconds connect_timeout) override {
    std::vector<json> announced;
    std::vector<std::string> addresses;
    for (const std::string& peer : peers) {
      json each = protocol::read_json(peer);
      if (!each.is_object() || !each.contains("gloo"))
        throw Error(fmt::format("the ranks of group {} have different backends", group_.name));
      addresses.push_back(each.at("gloo"));
      announced.push_back(std::move(each));
    }
    auto gloo = gloo_->connect(store, addresses, connect_timeout);
    if (size() == 1) return gloo;
    std::string problem;
    const auto region = map(announced, problem);
    if (const std::string why = first_problem(*gloo, problem, connect_timeout); !why.empty()) {
      deaths_.reset();
      made_.reset();
      static std::atomic<bool> is_told = false;
      if (group_.group_rank == 0 && !is_told.exchange(true))
        std::fprintf(stderr, "lockstep: group %s uses Gloo, not shared memory: %s\n", group_.name.c_str(), why.c_str());
      return gloo;
    }
    region->seal();
    made_.reset();
    {
      const std::lock_guard lock(mutex_);
      region_ = region;
      if (interrupted_) region_->end_all();
    }
    region->tell(group_.log);
    return make_shared_memory_backend(std::move(gloo), region, group_);
  }

  void interrupt() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      interrupted_ = true;
      if (region_) region_->end_all();
    }
    gloo_->interrupt();
  }

  void close() override {
    leave();
    gloo_->close();
  }

  std::vector<int> connections() const override { return gloo_->connections(); }
  bool lost_writes() const noexcept override { return gloo_->lost_writes(); }

  bool is_transport_error(const std::exception_ptr& error) const noexcept override {
    try {
      std::rethrow_exception(error);
    } catch (const SharedMemoryError&) {
      return true;
    } catch (...) {  // Gloo's, or an argument
      return gloo_->is_transport_error(error);
    }
  }
  bool lost_connection() const noexcept override {
    const std::lock_guard lock(mutex_);
    return (region_ && region_->any_ended()) || gloo_->lost_connection();
  }

 private:
  int size() const { return static_cast<int>(group_.ranks.size()); }

  /// Returns the group's memory, or says in `problem` why this rank can't have it.
  std::shared_ptr<SharedRegion> map(const std::vector<json>& announced, std::string& problem) {
    try {
      const json& maker = announced.at(0);
      if (size() > SharedRegion::kMostRanks)
        throw Error(fmt::format("the group has more than {} ranks", SharedRegion::kMostRanks));
      if (maker.contains("problem")) throw Error(maker.at("problem").get<std::string>());
      const std::string machine = machine_identity();
      for (const json& each : announced)
        if (each.at("machine") != machine) throw Error("the ranks are on several machines, or see other processes");
      if (!open_process(getpid())) throw Error("the system does not report the end of a process (Linux 5.3 does)");
      auto region = made_ ? made_ : SharedRegion::open(maker.at("memory"), group_.group_rank, size());
      watch_deaths(announced, region);
      if (!deaths_->watches_all()) throw Error("no descriptor is left to watch the processes of the others");
      return region;
    } catch (const std::exception& error) {
      problem = error.what();
      return nullptr;
    }
  }

  /// Collective. Returns the first rank's problem, which is the same on all ranks; empty where none has one.
  std::string first_problem(c10d::Backend& gloo, const std::string& own, std::chrono::milliseconds limit) const {
    constexpr int64_t kBytes = 200;
    at::Tensor mine = at::zeros({kBytes}, at::kByte), all = at::zeros({kBytes * size()}, at::kByte);
    std::memcpy(mine.data_ptr(), own.data(), std::min<size_t>(own.size(), kBytes - 1));
    c10d::AllgatherOptions options;
    options.timeout = limit;
    gloo._allgather_base(all, mine, options)->wait();
    for (int rank = 0; rank < size(); ++rank) {
      const char* text = static_cast<const char*>(all.const_data_ptr()) + rank * kBytes;
      if (*text) return fmt::format("rank {}: {}", group_.ranks[static_cast<size_t>(rank)], text);
    }
    return {};
  }

  void watch_deaths(const std::vector<json>& announced, const std::shared_ptr<SharedRegion>& region) {
    std::vector<Peer> peers;
    for (int rank = 0; rank < size(); ++rank) {
      const json& each = announced[static_cast<size_t>(rank)];
      peers.push_back({.rank = rank,
                       .same_machine = true,
                       .pid = each.at("pid"),
                       .process_start = each.at("start"),
                       .log = nullptr});
    }
    deaths_.emplace(std::move(peers), [region](int rank) { region->end(rank); });
  }

  /// What this rank has done stays in the memory: peers that still need it find it there.
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    if (region_) region_->end(group_.group_rank);
  }

  const GroupDescription group_;
  const std::unique_ptr<BackendConnector> gloo_;
  std::shared_ptr<SharedRegion> made_;  // until all have it
  mutable std::mutex mutex_;  // of the next two
  std::shared_ptr<SharedRegion> region_;
  bool interrupted_ = false;
  std::optional<DeathWatch> deaths_;
};

}  // namespace

std::unique_ptr<BackendConnector> make_shared_memory_connector(const GroupDescription& group,
                                                               std::unique_ptr<BackendConnector> gloo) {
  return std::make_unique<SharedMemoryConnector>(group, std::move(gloo));
}

}  // namespace lockstep::dist
