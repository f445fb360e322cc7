#include "python/operators/attach.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "inspectors/ranks/ranks.h"
#include "inspectors/trace/step_reductions.h"
#include "protocol/dist_error.h"
#include "python/operators/findings.h"
#include "python/operators/job_backend.h"

namespace lockstep::python {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Makes the first exchange of a job, through c10d's store. A rank that comes too late is named by the others, and
/// takes part in the next one.
class Meeting : public inspect::Exchange {
 public:
  Meeting(dist::Store store, int rank, RankSet ranks, int64_t& meetings, std::chrono::milliseconds deadline)
      : store_(std::move(store)), rank_(rank), ranks_(std::move(ranks)), meetings_(meetings), deadline_(deadline) {}

  int rank() const override { return rank_; }
  const RankSet& ranks() const override { return ranks_; }

  inspect::ExchangeResult try_gather(const inspect::Bytes& value, bool) override {
    while (true) {
      const std::string prefix = fmt::format("meeting-{}/", meetings_++);
      std::vector<std::string> keys;
      for (const int each : ranks_) keys.push_back(fmt::format("{}rank-{}", prefix, each));
      store_->set(fmt::format("{}rank-{}", prefix, rank_), value);
      RankSet missing;
      try {
        store_->wait(keys, deadline_);
      } catch (const std::exception&) {
        for (size_t i = 0; i < keys.size(); ++i)
          if (!store_->check({keys[i]})) missing.insert(ranks_.ranks()[i]);  // throws if the store itself is gone
      }
      const std::string wanted = missing.empty() ? "complete" : missing.str();
      const std::vector<uint8_t> wanted_bytes(wanted.begin(), wanted.end());
      const inspect::Bytes decided = store_->compareSet(prefix + "decision", {}, wanted_bytes);
      if (const std::string text(decided.begin(), decided.end()); text != "complete") {
        const RankSet absent = parse_rank_set(text, ranks_.ranks().back() + 1);
        if (absent.contains(rank_)) continue;
        return {.values = {}, .missing = absent, .early = false};
      }
      inspect::ExchangeResult result;
      for (const std::string& key : keys) result.values.push_back(store_->get(key));
      return result;
    }
  }

  // A meeting is a single exchange.
  std::vector<inspect::Bytes> gather(const inspect::Bytes&) override { throw lockstep::Error("nothing is attached"); }
  void broadcast(at::Tensor, int) override { throw lockstep::Error("nothing is attached"); }
  std::vector<at::Tensor> all_gather(at::Tensor) override { throw lockstep::Error("nothing is attached"); }

 private:
  const dist::Store store_;
  const int rank_;
  const RankSet ranks_;
  int64_t& meetings_;
  const std::chrono::milliseconds deadline_;
};

/// Returns the generation of the ranks that are attached; detach() sets it.
int64_t& generation() {
  static int64_t number = 0;
  return number;
}

/// Returns a store that no earlier group of the program has used: a program may destroy its groups and make them again,
/// and under torchrun the store and what it holds stay. The ranks attach to the groups equally often.
dist::Store fresh_store(const c10d::ProcessGroup& group) {
  const dist::Store store = c10::make_intrusive<c10d::PrefixStore>(
      generation() > 0 ? fmt::format("lockstep-{}", generation()) : "lockstep", group.getStore()->clone());
  const int64_t number = store->add(fmt::format("attachments-of-rank-{}", group.getRank()), 1);
  return c10::make_intrusive<c10d::PrefixStore>(std::to_string(number), store);
}

/// The group whose ranks are attached, or try to be. It is compared by identity: a program may destroy its groups and
/// make new ones under the same name. The program's own thread uses it.
struct Attachment {
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group{Group()};
  dist::Store store;
  int64_t meetings = 0;
  bool complete = false;
};

Attachment& attachment() {
  static auto* one = new Attachment;  // never destroyed, as the group's context
  return *one;
}

struct CountedGroups {
  std::mutex mutex;
  std::vector<std::string> names;
};
CountedGroups& counted_groups() {
  static auto* all = new CountedGroups;
  return *all;
}

uint64_t count_collectives() {
  CountedGroups& all = counted_groups();
  const std::lock_guard lock(all.mutex);
  uint64_t sum = 0;
  for (const std::string& name : all.names) {
    try {
      sum += c10d::resolve_process_group(name)->getSequenceNumberForGroup();
    } catch (const std::exception&) {  // the group was destroyed, or its backend does not count
    }
  }
  return sum;
}

}  // namespace

std::optional<inspect::Report> attach(const json& group, const inspect::InspectionCall& call,
                                      const inspect::InspectOptions& options) {
  static const bool collecting = [] {
    collect_findings();
    return true;
  }();
  static_cast<void>(collecting);
  Attachment& mine = attachment();
  if (group.is_null()) {
    detach();
    return std::nullopt;
  }
  const Group pg = c10d::resolve_process_group(group.get<std::string>());
  if (mine.group.lock() != pg) {
    detach();
    mine.store = fresh_store(*pg);
    mine.group = c10::weak_intrusive_ptr<c10d::ProcessGroup>(pg);
  }
  if (mine.complete) return std::nullopt;
  const auto in_session = ranks_of_job_group(group.get<std::string>());
  const RankSet all = in_session ? RankSet(in_session->ranks) : RankSet::all(pg->getSize());
  const int rank = in_session ? in_session->rank : pg->getRank();
  inspect::RanksOptions quiet;  // only those that all inspectors have are used
  quiet.name(options.name()).deadline(options.deadline()).step(options.step()).publish(false);
  inspect::Inspection inspection(call, quiet,
                                 std::make_unique<Meeting>(mine.store, rank, all, mine.meetings, options.deadline()));
  if (inspection.exchange_facts(json())) {
    dist::InitOptions init;
    init.backend = "gloo";  // inspectors exchange tensors on the host
    init.rank = rank;
    init.world_size = in_session ? in_session->world_size : pg->getSize();
    init.store = mine.store;
    init.connect_timeout = std::max<std::chrono::milliseconds>(options.deadline(), std::chrono::minutes(1));
    if (static_cast<int>(all.size()) == init.world_size)
      dist::init_process_group(init);
    else  // after %dist_continue
      dist::set_current_context(
          std::make_shared<dist::RankContext>(dist::ContextOptions{.rank = rank,
                                                                   .world_size = init.world_size,
                                                                   .store = mine.store,
                                                                   .connect_timeout = init.connect_timeout,
                                                                   .loopback = std::nullopt,
                                                                   .members = all}));
    mine.complete = true;
    return std::nullopt;
  }
  inspect::Report report;
  inspection.conclude(report);
  // publish_from_reporting_rank is not used: it asks the context, which is not there.
  if (options.publish() && !report.took_part.empty() && report.took_part.ranks().front() == rank) publish(report);
  return report;
}

void detach(int64_t of_generation) {
  if (of_generation > 0) generation() = of_generation;
  Attachment& mine = attachment();
  if (mine.complete && dist::is_initialized()) dist::destroy_process_group();
  mine = Attachment();
}

void count_collectives_of(const std::vector<std::string>& groups) {
  CountedGroups& all = counted_groups();
  {
    const std::lock_guard lock(all.mutex);
    for (const std::string& each : groups)
      if (std::ranges::find(all.names, each) == all.names.end()) all.names.push_back(each);
  }
  inspect::set_other_collectives(count_collectives);
}

}  // namespace lockstep::python
