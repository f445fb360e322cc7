#include "shell/cells/hang_pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/ras.h"
#include "inspectors/hang/state.h"

namespace lockstep::shell {

using inspect::HangPicture;
using inspect::RankPicture;

namespace {

/// `ahead_ns`: as RankGroup::clock_ahead_ns().
void take_answer(RankPicture& rank, int64_t cell, const protocol::question::Hang::Answer& answer, int64_t ahead_ns) {
  for (const auto& each : answer.throws)
    if (each.cell == cell)
      rank.caught.push_back({.type = each.type, .where = each.where, .time_ns = each.time_ns - ahead_ns});
  for (inspect::RankWait& wait : rank.waits)
    if (const auto line = answer.waits.find(std::to_string(wait.call.entry));
        line != answer.waits.end() && wait.where.empty())
      wait.where = line->second;
  if (!answer.last.empty()) rank.last_where = answer.last;
  if (!answer.frames || rank.place != RankPicture::Place::in_cell) return;
  for (const auto& frame : *answer.frames)
    rank.stack.push_back({.function = frame.function,
                          .cell = static_cast<long>(frame.cell.value_or(0)),
                          .line = frame.line.value_or(0),
                          .object = frame.object});
  rank.activity = inspect::activity_of(rank.stack, answer.asleep, answer.held);
  rank.where = inspect::code_line(rank.stack);
  // Calls that c10d makes itself (in a backward pass) have no line in a cell: they get the line that waits for them.
  for (inspect::RankWait& wait : rank.waits)
    if (wait.where.empty() && rank.activity == FindingKind::collective) wait.where = rank.where;
}

/// Takes what NCCL says on a rank. Evidence that can't be read is named, and the logs are judged without it.
void take_evidence(HangPicture& picture, int rank, const protocol::question::NcclEvidence& evidence) {
  const auto take = [&](const std::string& text, auto&& read) {
    if (text.empty()) return;
    try {
      picture.evidence.push_back(read(text));
    } catch (const inspect::UnreadableEvidence& error) {
      picture.unread.emplace_back(error.what());
    }
  };
  const std::string whose = " of rank " + std::to_string(rank);
  take(evidence.recorder, [&](const std::string& text) {
    return inspect::read_flight_recorder(text, "the Flight Recorder" + whose, rank);
  });
  take(evidence.errors,
       [&](const std::string& text) { return inspect::read_async_errors(text, "the errors" + whose); });
  take(evidence.ras, [&](const std::string& text) { return inspect::read_ras(text, "NCCL's RAS"); });
  if (!evidence.problem.empty()) picture.unread.push_back(evidence.problem);
}

/// Takes what a rank has reported itself (Waiting): it decides, also where the log shows other collectives in flight.
void take_waiting(RankPicture& rank, const protocol::Waiting& message) {
  const auto is_meant = [&](const inspect::RankWait& wait) {
    return wait.call.group == message.op.group && wait.call.seq == message.op.seq && !wait.call.point_to_point;
  };
  if (rank.has_log) {
    std::erase_if(rank.waits, [&](const auto& wait) { return !is_meant(wait); });
    if (!rank.waits.empty()) rank.activity = FindingKind::collective;
  } else {
    rank.waits.assign(1, {});
    auto& call = rank.waits[0].call;
    call.group = message.op.group;
    call.seq = message.op.seq;
    call.op = message.op.name;
    call.shape = message.op.shape;
    call.dtype = message.op.dtype;
  }
  for (inspect::RankWait& wait : rank.waits) {
    wait.missing = message.missing;
    if (wait.where.empty()) wait.where = message.where;
  }
}

}  // namespace

std::vector<RankPicture> HangPictures::logs_of(const RankSet& ranks, const inspect::LogPart& part) const {
  std::vector<RankPicture> pictures(static_cast<size_t>(ranks.size()));
  std::vector<RankPicture*> read;
  for (const int rank : ranks) {
    RankPicture& each = pictures[read.size()];
    each.rank = rank;
    read.push_back(&each);
  }
  services_.workers.read_logs(read, part);
  return pictures;
}

/// Dead ranks can't name the lines of their calls; those that are alive have the same code.
protocol::question::Hang HangPictures::question() const {
  const RankGroup& workers = services_.workers;
  protocol::question::Hang question;
  for (const RankPicture& dead : logs_of(RankSet::all(workers.world_size()) - workers.live(), {.recent = 1})) {
    if (dead.recent.empty() || !dead.recent.back().site_cell) continue;
    question.sites.push_back({*dead.recent.back().site_cell, dead.recent.back().site_offset, dead.rank});
  }
  const RankSet live = workers.live();
  if (!live.empty()) question.ras_rank = live.ranks().front();
  return question;
}

/// Returns the line of the last call of each dead rank, as the answers name it.
std::map<int, std::string> HangPictures::lines_of_dead(const Answers& answers) const {
  std::map<int, std::string> result;
  if (answers.empty()) return result;
  const auto sites = question().sites;
  for (const auto& [rank, answer] : answers)
    for (size_t i = 0; i < std::min(answer.sites.size(), sites.size()); ++i)
      if (!answer.sites[i].empty()) result[sites[i].rank] = answer.sites[i];
  return result;
}

RankPicture::Place HangPictures::place_of(int rank, const CellRun* run, const RankSet& live) const {
  if (!live.contains(rank)) return RankPicture::Place::dead;
  if (cells_.with(rank)) return RankPicture::Place::in_cell;
  return run && run->ranks().contains(rank) ? RankPicture::Place::left : RankPicture::Place::elsewhere;
}

HangPicture HangPictures::picture(const CellRun* run, const Answers& answers, size_t recent) const {
  HangPicture picture;
  picture.cell = run ? run->id() : 0;
  picture.number = run ? run->number() : 0;
  // Ranks compare their calls with those of other ranks on their machine.
  picture.calls_compared = services_.options.check_collectives && services_.workers.share_machine();
  const auto errors = run ? run->errors() : std::map<int, protocol::CellError>{};
  const auto statuses = run ? run->rank_status() : std::map<int, CellStatus>{};
  const auto lines = lines_of_dead(answers);
  for (const auto& [rank, answer] : answers)
    if (!answer.error.empty()) picture.unread.push_back(fmt::format("rank {}: {}", rank, answer.error));
  const RankSet live = services_.workers.live();
  for (RankPicture& rank : logs_of(RankSet::all(services_.workers.world_size()), {.recent = recent})) {
    const int number = rank.rank;
    rank.place = place_of(number, run, live);
    if (rank.gone()) rank.activity = FindingKind::idle;
    if (const auto status = statuses.find(number); status != statuses.end()) rank.how = status->second;
    if (const auto error = errors.find(number); error != errors.end()) {
      rank.error_type = error->second.type;
      rank.error_text = error->second.message;
      rank.consequence = !error->second.root_cause;
      rank.where = error->second.where;
    }
    if (const auto answer = answers.find(number); answer != answers.end()) {
      take_answer(rank, picture.cell, answer->second, services_.workers.clock_ahead_ns(number));
      if (answer->second.evidence) take_evidence(picture, number, *answer->second.evidence);
    }
    if (const auto line = lines.find(number); line != lines.end() && rank.gone()) rank.last_where = line->second;
    if (rank.recent.empty() || rank.recent.back().cell != picture.cell) rank.last_where.clear();
    if (run && run->is_in(CellRun::Phase::waiting, number)) take_waiting(rank, run->waits().at(number));
    picture.ranks.push_back(std::move(rank));
  }
  std::map<int64_t, int> processes;
  for (const RankPicture& rank : picture.ranks) processes[rank.main_thread] = rank.rank;
  for (inspect::Evidence& evidence : picture.evidence) inspect::name_ranks(evidence, processes);
  picture.now_ns = dist::monotonic_ns();
  return picture;
}

std::map<int, std::set<uint64_t>> HangPictures::entries_in_flight() const {
  std::map<int, std::set<uint64_t>> result;
  for (const RankPicture& picture : logs_of(services_.workers.live(), {.recent = 0}))
    for (const auto& wait : picture.waits) result[picture.rank].insert(wait.call.entry);
  return result;
}

std::vector<inspect::RankWait> HangPictures::waits_of(int rank, int64_t id) const {
  std::vector<inspect::RankWait> waits = std::move(logs_of({rank}, {.recent = 0}).front().waits);
  std::erase_if(waits, [id](const auto& wait) { return wait.call.cell != id; });
  return waits;
}

RankSet HangPictures::outside_collectives(const RankSet& ranks) const {
  RankSet result;
  for (const RankPicture& picture : logs_of(ranks, {.recent = 0}))
    if (picture.has_log && picture.waits.empty()) result.insert(picture.rank);
  return result;
}

HangPictures::Progress HangPictures::progress_of(int rank) const {
  const RankPicture picture = std::move(logs_of({rank}, {.recent = 1}).front());
  Progress progress;
  if (!picture.recent.empty()) progress.newest = picture.recent.back().entry;
  for (const auto& wait : picture.waits) progress.in_flight.insert(wait.call.entry);
  return progress;
}

}  // namespace lockstep::shell
