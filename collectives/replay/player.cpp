#include "collectives/replay/player.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <utility>

#include "protocol/dist_error.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {
/// Work that is done, or has failed, before anybody waits.
class PlayedWork : public c10d::Work {
 public:
  PlayedWork(std::vector<at::Tensor> received, int source, std::exception_ptr error)
      : c10d::Work(-1, c10d::OpType::UNKNOWN),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))),
        source_(source) {
    if (error)
      future_->setError(error);
    else
      future_->markCompleted(std::move(received));
    finish(error);
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  int sourceRank() const override { return source_; }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  const int source_;
};

/// Returns why `now` is not the recorded call; empty: it is.
std::string difference(const json& recorded, const json& now) {
  for (const char* key : {"name", "op", "received", "sent"})
    if (recorded.value(key, json()) != now.value(key, json()))
      return fmt::format("this run calls {}, and the recorded rank called {}", words_of_call(now),
                         words_of_call(recorded));
  const json sent = recorded.value("fingerprint", json()), here = now.value("fingerprint", json());
  if (sent == here) return {};
  return fmt::format("{} sends other values than the recorded rank did: {} now, {} recorded", words_of_call(now),
                     here.is_object() ? here.value("words", "") : "nothing",
                     sent.is_object() ? sent.value("words", "") : "nothing");
}
}  // namespace

class PlayingTransport : public SeenTransport {
 public:
  PlayingTransport(std::shared_ptr<Player> player, std::string group, int rank, int size)
      : SeenTransport(rank, size), player_(std::move(player)), group_(std::move(group)) {}
  void setTimeout(std::chrono::milliseconds) override {}

 protected:
  WorkPtr take(TransportCall call, const Issue&) override { return player_->play(call, group_); }

 private:
  const std::shared_ptr<Player> player_;
  const std::string group_;
};

namespace {
class PlayingConnector : public BackendConnector {
 public:
  explicit PlayingConnector(c10::intrusive_ptr<c10d::Backend> transport) : transport_(std::move(transport)) {}
  std::string announcement() override { return "replay"; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>&, const std::vector<std::string>&,
                                            std::chrono::milliseconds) override {
    return transport_;
  }
  void interrupt() noexcept override {}
  bool lost_connection() const noexcept override { return false; }

 private:
  const c10::intrusive_ptr<c10d::Backend> transport_;
};
}  // namespace

Player::Player(const std::string& path, int rank, SentText sent)
    : recording_(path), rank_(rank), sent_(std::move(sent)) {
  try {
    read_records(recording_.records(rank));
    if (const json& session = recording_.session(); session.is_object())
      for (const json& cell : session.at("cells")) last_number_ = std::max<int64_t>(last_number_, cell.at("number"));
    for (const int each : recording_.ranks())
      for (const Record& record : recording_.records(each))
        if (record.kind == RecordKind::result && record.text.contains("shared"))
          shares_[record.text["shared"]][record.text.at("share").at(0)] = &record;
  } catch (const json::exception& error) {
    throw Error(fmt::format("{} has a record that this program can't read: {}", path, error.what()));
  }
}

void Player::read_records(const std::vector<Record>& records) {
  for (const Record& each : records) {
    switch (each.kind) {
      case RecordKind::call:
        calls_[each.text.at("group")].push_back(
            {.call = &each, .number = each.text.at("number"), .step = each.text.at("step")});
        break;
      case RecordKind::result:
        results_[each.text.at("number")] = &each;
        break;
      case RecordKind::step:
        steps_[each.text.at("step")] = &each;
        break;
      case RecordKind::state:
        states_[each.text.at("step")] = &each;
        break;
      case RecordKind::cell:
        if (each.text.contains("cell"))
          cells_.push_back({.number = each.text["cell"],
                            .first_call = each.text.at("call"),
                            .first_step = each.text.at("step"),
                            .next_group = each.text.at("group")});
        else if (!cells_.empty())
          cells_.back().succeeded = each.text.at("succeeded").get<bool>();
        break;
      case RecordKind::group:
        backends_.emplace(each.text.at("group"), each.text.at("backend"));  // a program may make it anew with another
        break;
      case RecordKind::stopped:
        stopped_ = each.text.at("reason");
        break;
      default:
        break;
    }
  }
}

std::optional<std::string> Player::bytes_of_result(const Record& result, std::string& missing) const {
  if (!result.text.contains("shared")) return recording_.payload(result);
  const auto& shares = shares_.at(result.text["shared"]);
  const int count = result.text.at("share").at(1);
  std::string bytes;
  for (int index = 0; index < count; ++index) {
    const auto share = shares.find(index);
    if (share == shares.end()) {
      missing = fmt::format(
          "share {} of {} of its result is missing: the rank that was to keep it was not recorded any "
          "more, or did not come so far",
          index + 1, count);
      return std::nullopt;
    }
    bytes += recording_.payload(*share->second);
  }
  return bytes;
}

std::string Player::backend_of(const std::string& group) const {
  const auto found = backends_.find(group);
  return found == backends_.end() ? "gloo" : found->second;
}

c10::intrusive_ptr<c10d::Backend> Player::transport(const std::string& group, int group_rank, int size) {
  return c10::make_intrusive<PlayingTransport>(shared_from_this(), group, group_rank, size);
}

void Player::connect(WatchedBackend& backend, const std::string& name, int64_t generation) {
  WatchedGroup& group = *backend.group();
  const auto& identity = group.identity();
  const auto playing = transport(name, identity.group_rank, static_cast<int>(identity.ranks.size()));
  group.prepare(std::make_shared<PlayingConnector>(playing));
  backend.set_transport(playing);
  group.connected({}, group.seq(), generation);
}

std::string Player::where() const { return step_ < 0 ? "before the first step" : fmt::format("in step {}", step_); }

void Player::depart_here(const std::string& reason) {
  if (departure_.empty()) departure_ = fmt::format("{}: {}", where(), reason);
  throw Error(departure_);
}

void Player::depart(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  depart_here(reason);
}

void Player::end_cell_before(const std::string& what) {
  if (cells_.at(cell_).succeeded.value_or(false))
    depart_here(
        fmt::format("this run comes to {}, and the recorded rank did not in cell {}", what, cells_[cell_].number));
  throw Error(fmt::format("cell {} ended before it came to {} when it was recorded, and ends here",
                          cells_[cell_].number, what));
}

const Player::RecordedCell* Player::next_cell() const {
  const size_t next = cell_ == kNoCell ? 0 : cell_ + 1;
  return next < cells_.size() ? &cells_[next] : nullptr;
}

Player::CellBegun Player::begin_cell(int64_t number) {
  const std::lock_guard lock(mutex_);
  // What is typed after the end of the replay is none of the recording.
  is_beyond_ = is_stopped_ || !end_.empty() || !departure_.empty() || number > last_number_;
  if (is_beyond_) return {};
  const auto first = cells_.begin() + (cell_ == kNoCell ? 0 : static_cast<std::ptrdiff_t>(cell_) + 1);
  const auto found = std::find_if(first, cells_.end(), [&](const RecordedCell& cell) { return cell.number == number; });
  if (found == cells_.end()) {
    // The recording began after it, and before the first collective.
    if (cell_ == kNoCell && !cells_.empty() && number < cells_.front().number) return {};
    if (stopped_.empty())
      throw Error(fmt::format("cell {}, or this part of it, did not run on the recorded rank", number));
    end_ = fmt::format("the recording ends before cell {}: {}", number, stopped_);
    throw Error(end_);
  }
  // Calls of the cell before, and of cells that this run has passed over.
  for (auto& [group, calls] : calls_) {
    if (group == kRegroup || calls.empty() || calls.front().number >= found->first_call) continue;
    if (cell_ != kNoCell && !is_skipping_)
      depart_here(
          fmt::format("the recorded rank called {}, and this run did not", words_of_call(calls.front().call->text)));
    while (!calls.empty() && calls.front().number < found->first_call) calls.pop_front();
  }
  cell_ = static_cast<size_t>(found - cells_.begin());
  next_step_ = found->first_step;
  return {.regroups = static_cast<size_t>(std::ranges::count_if(
              calls_[kRegroup], [&](const RecordedCall& call) { return call.number < found->first_call; })),
          .next_group = found->next_group};
}

std::optional<RankSet> Player::take_regroup() {
  const std::lock_guard lock(mutex_);
  auto& regroups = calls_[kRegroup];
  const RecordedCell* next = next_cell();
  if (regroups.empty() || (next && regroups.front().number >= next->first_call)) return std::nullopt;
  const RankSet ranks(regroups.front().call->text.at("ranks").get<std::vector<int>>());
  regroups.pop_front();
  return ranks;
}

int64_t Player::take_step_number() {
  const std::lock_guard lock(mutex_);
  return next_step_++;
}

void Player::check_left_calls(int64_t step) {
  for (const auto& [group, calls] : calls_)
    if (group != kRegroup && !calls.empty() && calls.front().step < step)
      depart_here(
          fmt::format("the recorded rank called {}, and this run did not", words_of_call(calls.front().call->text)));
}

Player::Begun Player::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (!departure_.empty()) throw Error(departure_);
  if (is_beyond_) throw Error("this cell is none of the recording, and has no steps of it");
  if (const RecordedCell* next = next_cell(); next && cell_ != kNoCell && step >= next->first_step)
    end_cell_before(fmt::format("step {}", step));
  if (!is_skipping_) check_left_calls(step);
  const auto found = steps_.find(step);
  if (found == steps_.end()) {
    is_skipping_ = !steps_.empty() && step < steps_.rbegin()->first;
    if (!is_skipping_)
      end_ = fmt::format("the recording ends before step {}{}{}", step, stopped_.empty() ? "" : ": ", stopped_);
    return {.then = is_skipping_ ? Then::skip : Then::end};
  }
  const auto state = states_.find(step);
  const bool follows = step == 0 || steps_.contains(step - 1);
  if (!follows && state == states_.end()) throw Error(fmt::format("the recording has no state for step {}", step));
  for (auto& [group, calls] : calls_)
    while (group != kRegroup && !calls.empty() && calls.front().step < step) calls.pop_front();
  is_skipping_ = false;
  step_ = step;
  begun_.insert(step);
  return {.then = follows ? Then::play : Then::set_state,
          .step = found->second,
          .state = state == states_.end() ? nullptr : state->second};
}

const Record& Player::record_of(RecordKind kind, int64_t step) const {
  const auto& records = kind == RecordKind::state ? states_ : steps_;
  const auto found = records.find(step);
  if (found == records.end()) throw Error(fmt::format("the recording has nothing of step {}", step));
  return *found->second;
}

void Player::fill_from(const Record& record, const std::vector<at::Tensor>& tensors) const {
  fill(tensors, record.text.at("tensors"), recording_.payload(record));
}

int Player::first_difference(const Record& record, const std::vector<at::Tensor>& tensors) const {
  const std::string payload = recording_.payload(record);
  const json now = tensors_text(tensors), &recorded = record.text.at("tensors");
  size_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i >= recorded.size() || now[i] != recorded[i]) return static_cast<int>(i);
    const std::vector<at::Tensor> copies = readable({tensors[i]});
    for (const std::string_view bytes : bytes_of(copies)) {
      if (payload.size() - at < bytes.size() || std::memcmp(payload.data() + at, bytes.data(), bytes.size()) != 0)
        return static_cast<int>(i);
      at += bytes.size();
    }
  }
  return recorded.size() == tensors.size() ? -1 : static_cast<int>(tensors.size());
}

Player::RecordedCall Player::next_call(const std::string& group, const json& now) {
  if (is_beyond_) throw Error("this cell is none of the recording, and no other rank is here: " + words_of_call(now));
  const auto& calls = calls_[group];
  const RecordedCell* next = next_cell();
  const bool ends_before = calls.empty() || (next && calls.front().number >= next->first_call);
  const bool has_stopped = !next && calls.empty() && !stopped_.empty();
  if (cell_ != kNoCell && ends_before && !has_stopped && (next || cells_[cell_].succeeded))
    end_cell_before(words_of_call(now));
  if (calls.empty()) {
    end_ = fmt::format("the recording ends {}, before this run calls {}{}{}", where(), words_of_call(now),
                       stopped_.empty() ? "" : ": ", stopped_);
    throw Error(end_);
  }
  if (calls.front().step != step_)
    depart_here(fmt::format("this run calls {}, and the recorded rank made no further call", words_of_call(now)));
  return calls.front();
}

std::string Player::exchange(const std::string& group) {
  const std::lock_guard lock(mutex_);
  if (!departure_.empty()) throw Error(departure_);
  if (is_skipping_) throw Error("what an inspector found between steps that are left out is not recorded");
  const json now = {{"name", kExchange}, {"group", group}};
  const RecordedCall recorded = next_call(group, now);
  calls_[group].pop_front();
  const auto result = results_.find(recorded.number);
  if (result == results_.end() || result->second->text.contains("error")) {
    failed_call_ = "an inspection " + where() + " did not end on the recorded rank";
    throw Error(failed_call_);
  }
  failed_call_.clear();
  return recording_.payload(*result->second);
}

/// What this rank gets from a call between steps that are left out: where it gets what ranks have sent, its own.
static void fill_as_alone(const TransportCall& call) {
  if (call.sent.size() != 1) return;
  const at::NoGradGuard no_grad;
  const at::Tensor& sent = call.sent[0];
  for (const at::Tensor& to : call.received) {
    if (to.is_sparse() || sent.is_sparse() || sent.numel() == 0 || to.numel() % sent.numel() != 0) continue;
    to.copy_(sent.reshape({1, -1}).expand({to.numel() / sent.numel(), sent.numel()}).reshape(to.sizes()));
  }
}

c10::intrusive_ptr<c10d::Work> Player::play(const TransportCall& call, const std::string& group) {
  const at::DisableRecordFunctionGuard no_operators;  // of the program
  std::unique_lock lock(mutex_);
  if (!departure_.empty()) throw Error(departure_);
  if (is_skipping_) {
    fill_as_alone(call);
    return c10::make_intrusive<PlayedWork>(call.received, -1, nullptr);
  }
  lock.unlock();
  const json now = call_text(call, group, log_.get(), sent_);
  lock.lock();
  const RecordedCall recorded = next_call(group, now);
  const json& text = recorded.call->text;
  for (const json* each : std::initializer_list<const json*>{&text, &now})
    if (each->contains("unsupported"))
      throw Error(fmt::format("{}: {}", words_of_call(text), each->at("unsupported").get<std::string>()));
  if (const std::string differs = difference(text, now); !differs.empty()) depart_here(differs);
  calls_[group].pop_front();
  const auto result = results_.find(recorded.number);
  const bool has_error = result != results_.end() && result->second->text.contains("error");
  const auto fails = [](const std::string& reason) {
    return c10::make_intrusive<PlayedWork>(std::vector<at::Tensor>(), -1, std::make_exception_ptr(Error(reason)));
  };
  if (result == results_.end() || has_error) {
    failed_call_ = fmt::format("{}, {}, {}", words_of_call(text), where(),
                               has_error ? "failed on the recorded rank: " + result->second->text.value("error", "")
                                         : "never ended on the recorded rank");
    return fails(failed_call_);
  }
  std::string missing;
  const auto bytes = bytes_of_result(*result->second, missing);
  if (!bytes) {
    end_ = fmt::format("{}, {}: {}", words_of_call(text), where(), missing);
    return fails(end_);
  }
  fill(call.received, result->second->text.at("received"), *bytes);
  failed_call_.clear();  // the program has gone on
  ++played_;
  return c10::make_intrusive<PlayedWork>(call.received, result->second->text.value("source", -1), nullptr);
}

std::string Player::left_here() const {
  size_t count = 0;
  const RecordedCall* first = nullptr;
  for (const auto& [group, calls] : calls_) {
    if (group == kRegroup) continue;
    count += calls.size();
    if (!calls.empty() && (!first || calls.front().number < first->number)) first = &calls.front();
  }
  std::string words;
  if (first)
    words = fmt::format("{} recorded collective{} not reached, the first: {}", count, count == 1 ? " was" : "s were",
                        words_of_call(first->call->text));
  if (!steps_.empty() && steps_.rbegin()->first > (begun_.empty() ? -1 : *begun_.rbegin()))
    words += fmt::format("{}the recording goes on to step {}", words.empty() ? "" : "; ", steps_.rbegin()->first);
  return words;
}

void Player::stop_here(std::optional<int64_t> before) {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  if (before) begun_.erase(*before);
}

namespace {
/// Returns "0-1 and 4-7".
std::string text_of(const std::set<int64_t>& steps) {
  std::string text;
  for (auto first = steps.begin(); first != steps.end();) {
    auto last = first;
    for (auto next = std::next(last); next != steps.end() && *next == *last + 1; ++next) last = next;
    text += fmt::format("{}{}", text.empty() ? "" : " and ", *first);
    if (last != first) text += fmt::format("-{}", *last);
    first = std::next(last);
  }
  return text;
}

std::string as_sentence(std::string words) {
  if (!words.empty()) words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words.empty() ? words : ". " + words;
}
}  // namespace

std::string Player::words_of_conclusion() const {
  const std::string where = begun_.empty() ? "before the first step"
                                           : fmt::format("in step{} {}", begun_.size() > 1 ? "s" : "", text_of(begun_));
  const std::string text =
      played_ > 0 ? fmt::format(
                        "rank {} was replayed {}: {} collective{}, in all of which it sent what it had sent when "
                        "it was recorded",
                        rank_, where, played_, played_ == 1 ? "" : "s")
                  : fmt::format("no collective of rank {} was replayed", rank_);
  if (!departure_.empty()) return text + fmt::format(". {} departed {}", played_ > 0 ? "Then it" : "It", departure_);
  if (!end_.empty()) return text + as_sentence(end_);
  if (is_stopped_) return text;
  return text + (played_ == 0 && failed_call_.empty() ? ": the program made none" : "") + as_sentence(failed_call_) +
         as_sentence(left_here());
}

Player::Conclusion Player::conclusion() const {
  const std::lock_guard lock(mutex_);
  return {.text = words_of_conclusion(),
          .departed = !departure_.empty(),
          .is_over = is_stopped_ || !end_.empty(),
          .is_skipping = is_skipping_};
}

}  // namespace lockstep::dist
