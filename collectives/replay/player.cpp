#include "collectives/replay/player.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <cstring>
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
    for (const Record& each : recording_.records(rank)) {
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
        case RecordKind::stopped:
          stopped_ = each.text.at("reason");
          break;
        default:
          break;
      }
    }
  } catch (const json::exception& error) {
    throw Error(fmt::format("{} has a record that this program can't read: {}", path, error.what()));
  }
}

std::shared_ptr<BackendConnector> Player::connector(const std::string& group, int group_rank, int size) {
  return std::make_shared<PlayingConnector>(
      c10::make_intrusive<PlayingTransport>(shared_from_this(), group, group_rank, size));
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

void Player::check_left_calls(int64_t step) {
  for (const auto& [group, calls] : calls_)
    if (!calls.empty() && calls.front().step < step)
      depart_here(
          fmt::format("the recorded rank called {}, and this run did not", words_of_call(calls.front().call->text)));
}

Player::Begun Player::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (!departure_.empty()) throw Error(departure_);
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
    while (!calls.empty() && calls.front().step < step) calls.pop_front();
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

c10::intrusive_ptr<c10d::Work> Player::play(const TransportCall& call, const std::string& group) {
  const at::DisableRecordFunctionGuard no_operators;  // of the program
  std::unique_lock lock(mutex_);
  if (!departure_.empty()) throw Error(departure_);
  if (is_skipping_) return c10::make_intrusive<PlayedWork>(call.received, -1, nullptr);
  lock.unlock();
  const json now = call_text(call, group, log_.get(), sent_);
  lock.lock();
  auto& calls = calls_[group];
  if (calls.empty()) {
    end_ = fmt::format("the recording ends {}, before this run calls {}{}{}", where(), words_of_call(now),
                       stopped_.empty() ? "" : ": ", stopped_);
    throw Error(end_);
  }
  const RecordedCall recorded = calls.front();
  const json& text = recorded.call->text;
  if (recorded.step != step_)
    depart_here(fmt::format("this run calls {}, and the recorded rank made no further call", words_of_call(now)));
  for (const json* each : std::initializer_list<const json*>{&text, &now})
    if (each->contains("unsupported"))
      throw Error(fmt::format("{}: {}", words_of_call(text), each->at("unsupported").get<std::string>()));
  if (const std::string differs = difference(text, now); !differs.empty()) depart_here(differs);
  calls.pop_front();
  const auto result = results_.find(recorded.number);
  const bool has_error = result != results_.end() && result->second->text.contains("error");
  if (result == results_.end() || has_error) {
    end_ = fmt::format("{}, {}, {}", words_of_call(text), where(),
                       has_error ? "failed on the recorded rank: " + result->second->text.value("error", "")
                                 : "never ended on the recorded rank");
    return c10::make_intrusive<PlayedWork>(std::vector<at::Tensor>(), -1, std::make_exception_ptr(Error(end_)));
  }
  fill(call.received, result->second->text.at("received"), recording_.payload(*result->second));
  ++played_;
  return c10::make_intrusive<PlayedWork>(call.received, result->second->text.value("source", -1), nullptr);
}

std::string Player::left_here() const {
  size_t count = 0;
  const RecordedCall* first = nullptr;
  for (const auto& [group, calls] : calls_) {
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

json Player::summary() const {
  const std::lock_guard lock(mutex_);
  return {{"calls", played_}, {"steps", begun_}, {"departure", departure_}, {"end", end_}, {"left", left_here()}};
}

}  // namespace lockstep::dist
