#include "shell/jobs/call_judge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "shell/jobs/job_logs.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAskLimit{1000}, kAgain{10};
// How long the other ranks get to come to the same number, so that the message names all calls: as on one machine.
constexpr milliseconds kPatience{250};
constexpr seconds kTellLimit{5};  // for ranks that are busy with another answer
constexpr seconds kFailLimit{10};  // that ranks which were told get to end
constexpr size_t kMostKept = 512;  // differences whose ranks were told
constexpr size_t kRecent = 200;  // calls in which the usual order is looked for

}  // namespace

void CallJudge::take(const std::vector<dist::NewCall>& calls) {
  const bool are_many = differing_.size() >= kMostKept;
  std::erase_if(differing_, [&](const auto& each) {
    const Difference& difference = each.second.first;
    return difference.is_over && (!difference.mismatch || are_many);
  });
  for (const dist::NewCall& each : calls) {
    if (table_.add(each) != CallTable::Seen::differs) continue;
    const auto [found, is_new] = differing_.try_emplace(
        each.incarnation,
        Difference{.incarnation = each.incarnation, .seq = each.seq, .found_at = EventLoop::Clock::now()},
        std::make_unique<Deadline>(loop_));
    // What differs later follows from the first. Ranks are asked from the loop: whoever brings calls may be asking.
    if (is_new) found->second.second->set_after({}, [this, &difference = found->second.first] { look(difference); });
  }
}

bool CallJudge::has_told_lately() const { return told_at_ && EventLoop::Clock::now() < *told_at_ + kFailLimit; }

void CallJudge::look(Difference& difference) {
  if (!difference.mismatch) find_mismatch(difference);
  if (difference.mismatch) tell(difference);
  const auto age = EventLoop::Clock::now() - difference.found_at;
  difference.is_over = difference.mismatch ? difference.untold.empty() || age > kTellLimit : age > kPatience;
  if (!difference.is_over)
    differing_.at(difference.incarnation).second->set_after(kAgain, [this, &difference] { look(difference); });
}

std::map<int, dist::FoundCall> CallJudge::ask(const std::vector<JobMember>& ranks, const Difference& about,
                                              size_t recent, RankSet* members) const {
  const json request = {
      {"request", kCallRequest}, {"incarnation", about.incarnation}, {"seq", about.seq}, {"recent", recent}};
  std::map<int, dist::FoundCall> found;
  const auto add = [&](int rank, LoggedCall logged) {
    if (members && !logged.ranks.empty()) {
      members->insert(rank);  // the log may not name it
      *members = *members | RankSet(std::move(logged.ranks));
    }
    if (logged.found) found[rank] = std::move(*logged.found);
  };
  std::vector<JobMember> elsewhere;
  for (const JobMember& each : ranks)
    if (each.proxy)
      elsewhere.push_back(each);
    else
      add(each.facts.rank, read_logged_call(each.folder(), each.facts.rank, each.facts.pid, request));
  for (const auto& [rank, answer] : ask_ranks(elsewhere, request, kAskLimit)) try {
      if (answer.error.empty()) add(rank, answer.body.at("call").get<LoggedCall>());
    } catch (const json::exception&) {  // nothing is known of this rank
    }
  return found;
}

void CallJudge::find_mismatch(Difference& difference) {
  const std::vector<JobMember> ranks = ranks_();
  RankSet members;
  const std::map<int, dist::FoundCall> found = ask(ranks, difference, 0, &members);
  std::map<std::string, JobMember> camps;  // the first rank of each
  std::set<uint64_t> signatures;
  std::map<int, dist::CalledHere> called;
  RankSet missing = members;
  for (const JobMember& each : ranks) {
    const auto call = found.find(each.facts.rank);
    if (call == found.end()) continue;
    missing.erase(call->first);
    signatures.insert(call->second.signature);
    called[call->first].record = call->second.call;
    camps.try_emplace(describe(call->second.call), each);
  }
  const bool may_come = EventLoop::Clock::now() < difference.found_at + kPatience;
  if (signatures.size() < 2 || (!missing.empty() && may_come)) return;
  std::vector<JobMember> first_ones;
  for (const auto& [call, rank] : camps) first_ones.push_back(rank);
  for (auto& [rank, call] : ask(first_ones, difference, kRecent)) called[rank].recent = std::move(call.recent);
  const std::string group = called.begin()->second.record.group;
  difference.mismatch = dist::make_mismatch(group, difference.seq, called, missing,
                                            [](const dist::CollectiveRecord& call) { return call.place.str(); });
  for (const JobMember& each : ranks)
    if (members.contains(each.facts.rank)) difference.untold.push_back(each);
}

void CallJudge::tell(Difference& difference) {
  const auto answers = ask_ranks(difference.untold,
                                 {{"request", "mismatch"},
                                  {"incarnation", difference.incarnation},
                                  {"message", difference.mismatch->what()},
                                  {"finding", difference.mismatch->finding}},
                                 kAskLimit);
  std::erase_if(difference.untold, [&](const JobMember& each) {
    const auto answer = answers.find(each.facts.rank);
    if (answer == answers.end()) return true;  // it has ended
    const auto& [body, error] = answer->second;
    if (error.empty() && body.value("told", json()) == true) told_at_ = EventLoop::Clock::now();
    // It is busy with another answer, or has not answered in time.
    const auto says = [&](const char* words) { return error.find(words) != std::string::npos; };
    return !says("still answering") && !says("did not answer") && !says("no answer in time");
  });
}

}  // namespace lockstep::shell
