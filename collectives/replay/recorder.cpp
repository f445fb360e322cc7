#include "collectives/replay/recorder.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "collectives/transport/transport_text.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {
constexpr int64_t kMostCallsOfAStep = 100'000;  // a program without marks would fill the folder
constexpr size_t kLeastShared = 4096;  // bytes
}  // namespace

/// Records the end of a message when somebody has waited for it: Gloo's have no future, and are done then.
class RecordedMessage : public c10d::Work {
 public:
  RecordedMessage(c10::intrusive_ptr<c10d::Work> inner, c10d::OpType type,
                  std::function<void(std::exception_ptr error, int source)> ended)
      : c10d::Work(-1, type), inner_(std::move(inner)), ended_(std::move(ended)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    bool result = false;
    try {
      result = inner_->wait(timeout);
    } catch (...) {  // thrown on
      if (auto ended = std::exchange(ended_, nullptr)) ended(std::current_exception(), -1);
      throw;
    }
    if (auto ended = std::exchange(ended_, nullptr))
      ended(nullptr, retrieveOpType() == c10d::OpType::SEND ? -1 : inner_->sourceRank());
    return result;
  }
  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  void abort() override { inner_->abort(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  const c10::intrusive_ptr<c10d::Work> inner_;
  std::function<void(std::exception_ptr error, int source)> ended_;
};

class RecordingTransport : public SeenTransport {
 public:
  /// `connection` names the group and how often it was connected, equally on all ranks.
  RecordingTransport(std::shared_ptr<Recorder> recorder, c10::intrusive_ptr<c10d::Backend> inner, std::string group,
                     std::string connection, Recorder::Share share)
      : SeenTransport(inner->getRank(), inner->getSize()),
        recorder_(std::move(recorder)),
        inner_(std::move(inner)),
        group_(std::move(group)),
        connection_(std::move(connection)),
        share_(share) {}

  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 protected:
  WorkPtr take(TransportCall call, const Issue& issue) override {
    Recorder::Begun begun = recorder_->begin_call(call, group_);
    if (is_shared(call)) {
      begun.shared = fmt::format("{}/{}", connection_, ++shared_calls_);
      begun.share = share_;
    }
    WorkPtr work;
    try {
      work = issue(*inner_);
    } catch (...) {  // thrown on
      recorder_->fail_call(begun, transport_text(std::current_exception()));
      throw;
    }
    const auto ended = [recorder = recorder_, begun, received = std::move(call.received)](std::exception_ptr error,
                                                                                          int source) {
      if (error)
        recorder->fail_call(begun, transport_text(error));
      else
        recorder->end_call(begun, received, source);
    };
    if (call.is_message) return c10::make_intrusive<RecordedMessage>(work, work->retrieveOpType(), ended);
    // The first callback runs before those that come later, and before a wait for the work returns.
    work->getFuture()->addCallback(
        [ended](c10::ivalue::Future& future) { ended(future.hasError() ? future.exception_ptr() : nullptr, -1); },
        /*uses_future=*/false);
    return work;
  }

 private:
  /// Whether all ranks of the group get the same, and enough of it that a share is worth its record.
  bool is_shared(const TransportCall& call) const {
    constexpr std::array<std::string_view, 3> kSame = {"allreduce", "allgather", "_allgather_base"};
    if (share_.count < 2 || std::ranges::count(kSame, call.name) == 0) return false;
    size_t bytes = 0;
    for (const at::Tensor& each : call.received) {
      if (!each.device().is_cpu() || each.layout() != at::kStrided) return false;
      bytes += each.nbytes();
    }
    return bytes >= kLeastShared;
  }

  const std::shared_ptr<Recorder> recorder_;
  const c10::intrusive_ptr<c10d::Backend> inner_;
  const std::string group_, connection_;
  const Recorder::Share share_;
  int64_t shared_calls_ = 0;
};

namespace {
/// The bytes from `begin` to `end` of `all`.
std::vector<std::string_view> between(const std::vector<std::string_view>& all, size_t begin, size_t end) {
  std::vector<std::string_view> part;
  size_t at = 0;
  for (const std::string_view each : all) {
    const size_t first = std::clamp(begin, at, at + each.size()), last = std::clamp(end, at, at + each.size());
    if (first < last) part.push_back(each.substr(first - at, last - first));
    at += each.size();
  }
  return part;
}
}  // namespace

Recorder::Recorder(const std::string& folder, int rank, int64_t steps, json about, SentText sent,
                   std::shared_ptr<CollectiveLog> log)
    : rank_(rank), steps_(steps), sent_(std::move(sent)), log_(std::move(log)), files_(folder, rank) {
  about["rank"] = rank;
  about["steps"] = steps;
  const std::lock_guard lock(mutex_);
  append(0, RecordKind::about, about);
}

c10::intrusive_ptr<c10d::Backend> Recorder::record(c10::intrusive_ptr<c10d::Backend> inner, const std::string& group,
                                                   const std::string& backend, const RankSet& sharing,
                                                   int64_t generation) {
  constexpr std::array<std::string_view, 2> kRecorded = {"gloo", "shared_memory"};
  if (std::ranges::find(kRecorded, inner->getBackendName()) == kRecorded.end()) {
    stop(fmt::format("group {} has a backend for GPUs, and its collectives are not recorded", group));
    return inner;
  }
  // Equal on all ranks: disjoint groups may have one name, one after the other as well, and a connection may fail on some
  // ranks only, but not its generation.
  const std::string name = fmt::format("{} of {}", group, sharing.str());
  const Share share{
      .index = static_cast<size_t>(std::ranges::count_if(sharing.ranks(), [this](int rank) { return rank < rank_; })),
      .count = sharing.size()};
  const std::lock_guard lock(mutex_);
  append(0, RecordKind::group, {{"group", group}, {"backend", backend}});
  if (generation == 0) ++made_[name];
  return c10::make_intrusive<RecordingTransport>(shared_from_this(), std::move(inner), group,
                                                 fmt::format("{}/{}/{}/{}", name, logs_, made_[name], generation),
                                                 share);
}

void Recorder::append(uint64_t segment, RecordKind kind, const json& text,
                      const std::vector<std::string_view>& payload) {
  if (!stopped_.empty()) return;
  if (const int error = files_.append(segment, kind, text, payload))
    end_with(fmt::format("its folder has no room for it: {}", std::strerror(error)));
}

void Recorder::end_with(const std::string& reason) {
  if (!stopped_.empty()) return;
  // A short record may fit where a result did not. Without it the missing result ends the replay.
  static_cast<void>(files_.append(files_.segment(), RecordKind::stopped, {{"reason", reason}}));
  stopped_ = reason;
  std::fprintf(stderr, "lockstep: recording has ended: %s\n", reason.c_str());
}

Recorder::Begun Recorder::begin_call(const TransportCall& call, const std::string& group) {
  std::shared_ptr<CollectiveLog> log;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_.empty()) return {};
    log = log_;
  }
  const at::DisableRecordFunctionGuard no_operators;  // of the program
  json text = call_text(call, group, log.get(), sent_);
  const std::lock_guard lock(mutex_);
  return append_call(std::move(text));
}

Recorder::Begun Recorder::append_call(json text, std::optional<uint64_t> segment) {
  const Begun begun{.number = ++calls_, .segment = segment.value_or(files_.segment())};
  text["number"] = begun.number;
  text["step"] = step_;
  append(begun.segment, RecordKind::call, text);
  if (++calls_of_step_ > kMostCallsOfAStep)
    end_with(fmt::format("there are more than {} calls and no mark of a step (lockstep.step, ddp::step)",
                         kMostCallsOfAStep));
  return begun;
}

void Recorder::note_regroup(const RankSet& ranks) {
  const std::lock_guard lock(mutex_);
  if (stopped_.empty()) append_call({{"name", kRegroup}, {"group", kRegroup}, {"ranks", ranks.ranks()}}, 0);
}

void Recorder::set_log(std::shared_ptr<CollectiveLog> log) {
  const std::lock_guard lock(mutex_);
  log_ = std::move(log);
  ++logs_;
}

// Marks of cells are in the segment that stays: cells whose steps are left out are as important as the others.
void Recorder::begin_cell(int64_t number, int next_group) {
  const std::lock_guard lock(mutex_);
  append(0, RecordKind::cell, {{"cell", number}, {"call", calls_ + 1}, {"step", step_ + 1}, {"group", next_group}});
}

void Recorder::end_cell(bool succeeded) {
  const std::lock_guard lock(mutex_);
  append(0, RecordKind::cell, {{"succeeded", succeeded}, {"call", calls_ + 1}});
}

Recorder::Begun Recorder::begin_exchange(const std::string& group) {
  const std::lock_guard lock(mutex_);
  return stopped_.empty() ? append_call({{"name", kExchange}, {"group", group}}) : Begun();
}

void Recorder::end_exchange(const Begun& begun, std::string_view received) {
  if (begun.number == 0) return;
  const std::lock_guard lock(mutex_);
  append(begun.segment, RecordKind::result, {{"number", begun.number}}, {received});
}

void Recorder::end_call(const Begun& begun, const std::vector<at::Tensor>& received, int source) {
  if (begun.number == 0) return;
  const at::DisableRecordFunctionGuard no_operators;
  json text = {{"number", begun.number}};
  if (source >= 0) text["source"] = source;
  for (const at::Tensor& each : received)
    if (!each.device().is_cpu()) return;  // call_text() has said so
  text["received"] = tensors_text(received);
  const std::vector<at::Tensor> tensors = readable(received);
  std::vector<std::string_view> bytes = bytes_of(tensors);
  if (!begun.shared.empty()) {
    text["shared"] = begun.shared;
    text["share"] = {begun.share.index, begun.share.count};
    size_t all = 0;
    for (const std::string_view each : bytes) all += each.size();
    const auto edge = [&](size_t index) { return all * index / begun.share.count; };
    bytes = between(bytes, edge(begun.share.index), edge(begun.share.index + 1));
  }
  const std::lock_guard lock(mutex_);
  append(begun.segment, RecordKind::result, text, bytes);
}

void Recorder::fail_call(const Begun& begun, const std::string& error) {
  if (begun.number == 0) return;
  const std::lock_guard lock(mutex_);
  append(begun.segment, RecordKind::result, {{"number", begun.number}, {"error", error}});
}

void Recorder::begin_step(int64_t step, const Kept& at_begin, const std::optional<Kept>& state) {
  const auto written = [](const Kept& kept, int64_t number) {
    json text = kept.text;
    text["step"] = number;
    text["tensors"] = tensors_text(kept.tensors);
    return text;
  };
  const std::vector<at::Tensor> tensors = readable(at_begin.tensors);
  const std::vector<at::Tensor> of_state = state ? readable(state->tensors) : std::vector<at::Tensor>();
  const std::lock_guard lock(mutex_);
  if (!stopped_.empty()) return;
  step_ = step;
  calls_of_step_ = 0;
  if (state) {
    try {
      files_.begin_segment();
    } catch (const Error& error) {  // no descriptor is left, or no room
      return end_with(error.what());
    }
    append(files_.segment(), RecordKind::state, written(*state, step), bytes_of(of_state));
  }
  append(files_.segment(), RecordKind::step, written(at_begin, step), bytes_of(tensors));
}

void Recorder::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  end_with(reason);
}

std::string Recorder::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace lockstep::dist
