#include "inspectors/hang/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/log/process_identity.h"
#include "inspectors/evidence/read.h"
#include "inspectors/findings/about.h"
#include "inspectors/hang/analysis.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/state.h"
#include "inspectors/hang/straggler.h"

namespace lockstep::inspect {
namespace {

bool process_runs(const dist::CollectiveLogReader& log) {
  return dist::process_start_time(static_cast<pid_t>(log.pid())) == log.process_start();
}

}  // namespace

std::vector<Finding> hang(const std::vector<std::string>& logs, double seconds,
                          const std::vector<std::string>& evidence) {
  HangPicture picture;
  picture.now_ns = dist::monotonic_ns();
  RankSet seen;
  std::map<int64_t, int> processes;
  for (const std::string& path : logs) {
    const dist::CollectiveLogReader log(path);
    RankPicture rank;
    rank.rank = log.rank();
    if (!process_runs(log)) rank.place = RankPicture::Place::dead;
    read_log(rank, path);
    // New waits may still end.
    std::erase_if(rank.waits, [&](const RankWait& wait) {
      return static_cast<double>(picture.now_ns - wait.call.entered_ns) < seconds * 1e9;
    });
    seen.insert(rank.rank);
    processes[log.pid()] = rank.rank;
    picture.ranks.push_back(std::move(rank));
  }
  std::sort(picture.ranks.begin(), picture.ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });

  for (const std::string& path : evidence) {
    picture.evidence.push_back(read_evidence_file(path));
    name_ranks(picture.evidence.back(), processes);
  }

  std::vector<Finding> findings = evidence_findings(picture);
  for (auto& proven : analyse_hang(picture).proven) findings.push_back(std::move(proven.finding));
  if (auto late = find_straggler(times_of(picture))) findings.push_back(std::move(*late));
  if (!findings.empty()) return findings;
  Finding ok = About{.inspector = "hang", .object = {}, .step = {}, .ranks = seen}.finding(Severity::note, Verdict::ok);
  for (const RankPicture& rank : picture.ranks)
    ok.message += fmt::format("{}rank {} {}", ok.message.empty() ? "no hang is proven: " : "; ", rank.rank,
                              rank.waits.empty() ? std::string("is in no collective") : rank_sentence(picture, rank));
  return {ok};
}

}  // namespace lockstep::inspect
