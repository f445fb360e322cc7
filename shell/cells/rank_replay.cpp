#include "shell/cells/rank_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

// A limit of cells that is shorter does not hold for loading one.
constexpr double kLoadPatience_s = 5;

}  // namespace

bool RankReplay::run(PastCells& past, const std::function<bool()>& interrupted) {
  const auto stopped = [&] { return interrupted() || !services_.workers.live().contains(rank_); };
  const bool is_python = services_.options.has_python_ranks();
  plan_ = past.replay(rank_, is_python);
  for (size_t next = 0; next < plan_.actions.size(); ++next) {
    const auto* object = std::get_if<const PastObject*>(&plan_.actions[next]);
    const size_t failures = failures_.size();
    done_.reset();
    if (object ? !load(**object, stopped) : !run(std::get<Replay::Cell>(plan_.actions[next]), past, stopped))
      return false;
    // What needs a name of it does not run either. The actions are the same, in the same order.
    if (failures_.size() > failures || (done_ && done_->status != CellStatus::ok))
      plan_ = past.replay(rank_, is_python);
  }
  return true;
}

bool RankReplay::load(const PastObject& object, const std::function<bool()>& stopped) {
  loaded_.reset();
  services_.workers.send_object(RankSet{rank_}, object.load, *object.bytes);
  if (!serve_until([&] { return loaded_ || stopped(); }, kLoadPatience_s))
    throw_too_long(object.number, kLoadPatience_s);
  if (!loaded_) return false;
  if (loaded_->ok) return true;
  failures_.push_back({.number = object.number, .error = {}});
  failures_.back().error.message = loaded_->message;
  return true;
}

bool RankReplay::run(const Replay::Cell& cell, PastCells& past, const std::function<bool()>& stopped) {
  if (!cell.runs) return true;
  if (cell.python)
    services_.workers.hub().send(rank_, *cell.python);
  else
    services_.workers.hub().send(rank_, cell.message);
  number_ = cell.number;
  const bool is_in_time = serve_until([&] { return done_ || stopped(); }, 0);
  if (!done_ && (!is_in_time || !services_.workers.live().contains(rank_))) note_end(cell, past);
  if (!is_in_time) throw_too_long(cell.number, 0);
  if (!done_) return false;
  number_ = 0;
  for (protocol::LeftOut& each : done_->left_out)
    left_out_.push_back({.number = cell.number, .line = each.line, .why = std::move(each.why)});
  const bool is_ok = done_->status == CellStatus::ok;
  const bool is_fine = past.ran_again(rank_, cell.run, *done_);
  if (done_->steps_done > 0 || (!cell.python && (is_ok || !is_fine))) ++cells_;
  if (!is_fine)
    failures_.push_back(
        {.number = cell.number, .error = done_->error ? std::move(*done_->error) : protocol::CellError()});
  return true;
}

/// Notes how far the rank had come in a cell that it does not end, as its log says.
void RankReplay::note_end(const Replay::Cell& cell, PastCells& past) const {
  inspect::RankPicture picture;
  picture.rank = rank_;
  services_.workers.read_logs({&picture}, {.recent = 1});
  const int64_t id = cell.python ? cell.python->cell : cell.message.cell;
  if (picture.cell == id)
    past.ran_again(
        rank_, cell.run,
        {.cell = id, .status = CellStatus::dead, .steps_done = picture.step, .error = {}, .collectives = {}});
}

double RankReplay::limit_s(double least_s) const { return std::max(services_.options.cell_timeout_s, least_s); }

/// Returns whether that was in time.
bool RankReplay::serve_until(const std::function<bool()>& done, double least_limit_s) const {
  std::optional<EventLoop::Clock::time_point> deadline;
  if (services_.options.cell_timeout_s > 0)
    deadline = EventLoop::Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(limit_s(least_limit_s) * 1000));
  return services_.loop.run_until(done, deadline);
}

void RankReplay::throw_too_long(int64_t number, double least_limit_s) const {
  throw StartError(
      fmt::format("rank {} could not start: cell {} took longer than {:g} s as it ran again (--cell-timeout)", rank_,
                  number, limit_s(least_limit_s)));
}

bool RankReplay::take(FromWorker& from) {
  if (auto* loaded = std::get_if<protocol::Loaded>(&from.message)) {
    loaded_ = std::move(*loaded);
  } else if (auto* done = std::get_if<protocol::Done>(&from.message)) {
    done_ = std::move(*done);
  } else if (std::holds_alternative<protocol::Output>(from.message)) {
    const auto bytes = static_cast<int64_t>(from.frames.empty() ? 0 : from.frames[0].size());
    output_bytes_ += bytes;
    services_.workers.hub().send(rank_, protocol::Credit{bytes});
  } else {
    return !std::holds_alternative<protocol::Reply>(from.message);
  }
  return true;
}

}  // namespace lockstep::shell
