#include "collectives/session_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <unordered_map>

#include "collectives/environment.h"
#include "collectives/log/meetings.h"
#include "collectives/rank_context.h"
#include "collectives/transport/backend_config.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/transport/nccl_environment.h"
#include "collectives/transport/tcp_store.h"

namespace lockstep::dist {

namespace {
std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// May be given before the group is there.
struct WaitingCallback {
  std::mutex mutex;
  HangWatch::Callback callback;
};
WaitingCallback& waiting_callback() {
  static WaitingCallback callback;
  return callback;
}

// May be asked for before there is a log.
struct LongWaitWatch {
  double limit_s = 0;
  std::function<void()> wake;
};
LongWaitWatch& long_wait_watch() {
  static LongWaitWatch watch;
  return watch;
}

std::string choose_backend(const SessionGroupOptions& options) {
  if (options.player) return options.player->backend_of("default");
  if (options.backend != "auto" && !options.backend.empty()) return options.backend;
  return options.device.starts_with("cuda") && has_backend("nccl") ? "cpu:gloo,cuda:nccl" : "gloo";
}
}  // namespace

/// Makes `context` the rank's, with what the worker wants to know of its collectives.
static void set_session_context(const std::shared_ptr<RankContext>& context) {
  {
    std::lock_guard lock(waiting_callback().mutex);
    context->watch().set_callback(waiting_callback().callback);
  }
  if (const LongWaitWatch& long_ones = long_wait_watch(); long_ones.wake) {
    context->log()->watch_long_waits(static_cast<int64_t>(long_ones.limit_s * 1e9), long_ones.wake);
  }
  set_current_context(context);
}

std::string register_nccl() { return register_nccl_of_plugin(); }

void start_session_group(const SessionGroupOptions& options) {
  const size_t colon = options.store_address.rfind(':');
  int port = 0;
  if (colon != std::string::npos)
    std::from_chars(options.store_address.data() + colon + 1,
                    options.store_address.data() + options.store_address.size(), port);
  if (port <= 0 || port > 65535)
    throw ArgumentError(fmt::format("LOCKSTEP_STORE is '{}'; it must be HOST:PORT", options.store_address));
  const std::string host = options.store_address.substr(0, colon);
  const std::string backend = choose_backend(options);
  const BackendConfig named(backend);  // an unknown name: before anyone waits
  // On the loopback interface the store is a process of this user, as everything of the session is.
  const bool own_user_only = is_loopback(host);
  Store store = connect_store(host, port, milliseconds(options.connect_timeout_s), own_user_only);
  if (!options.store_key.empty()) store = c10::make_intrusive<c10d::PrefixStore>(options.store_key, store);
  const auto world = std::make_shared<SessionWorld>();
  world->options = {.rank = options.rank,
                    .world_size = options.world_size,
                    .store = store,
                    .backend = backend,
                    .timeout = milliseconds(options.timeout_s),
                    .connect_timeout = milliseconds(options.connect_timeout_s),
                    .log_path = options.log_path,
                    .check_collectives = options.check_collectives,
                    .loopback = is_loopback(host),
                    .own_user_only = own_user_only,
                    .generation = options.generation,
                    .of_session = true,
                    .player = options.player};
  set_session_context(std::make_shared<RankContext>(world->options));
  set_session_world(world);
}

namespace {
std::atomic<int64_t> step_marks = 0;
}

int64_t take_step_number() { return step_marks++; }

void check_recordable() {
  const auto context = require_context("record");
  if (context->recorder()) throw Error("this rank is recorded already, or was");
  // Making a wrapper is no meeting, and has collectives.
  const bool has_made_some = std::ranges::any_of(progress(), [](const auto& group) { return group.second > 0; });
  if (has_made_some || meetings() > 0 || context->group_count() > 1 || step_marks > 0)
    throw Error(
        "this rank has made collectives already, and what it has received is not known any more: record from "
        "the start of the ranks (lockstep --record K, or %dist_reset and %record on)");
}

void record_session(std::shared_ptr<Recorder> recorder) {
  require_context("record")->record(recorder);
  if (const auto world = session_world()) world->options.recorder = std::move(recorder);
}

void begin_recorded_cell(int64_t number) {
  if (const auto context = current_context()) context->begin_recorded_cell(number);
}

void end_recorded_cell(bool succeeded) {
  const auto context = current_context();
  if (context && context->recorder()) context->recorder()->end_cell(succeeded);
}

bool join_session_again(const InitOptions& options) {
  const auto world = session_world();
  if (!world) return false;
  ContextOptions again = world->options;
  again.store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("join-{}", ++world->joins), again.store);
  // The others have met there; this rank comes to their next regroup.
  again.generation = is_rejoining() ? world->options.generation : 0;
  if (!options.backend.empty()) again.backend = options.backend;
  if (options.timeout != kDefaultTimeout) again.timeout = options.timeout;
  if (!options.log_path.empty()) again.log_path = options.log_path;
  again.check_collectives = again.check_collectives && options.check_collectives;
  const auto context = std::make_shared<RankContext>(std::move(again));
  for (const auto& [cell, range] : world->code) context->log()->add_code_range(cell, range.first, range.second);
  set_session_context(context);
  return true;
}

bool is_replacement() {
  const auto world = session_world();
  return world && world->options.generation > 0 && !world->is_restored;
}

void end_replacement() {
  if (const auto world = session_world()) world->is_restored = true;
}

void end_session_group() {
  set_current_context({});
  set_session_world({});
}

void check_device_works() {
  if (const auto context = current_context()) context->check_device_works();
}

void regroup_session(int64_t generation, const RankSet& ranks, const RankSet& members, double timeout_s,
                     int64_t aborts) {
  const auto context = require_context("regroup");
  if (!members.empty()) set_session_members(members);
  context->regroup(generation, ranks, milliseconds(timeout_s), aborts);
}

void resize_session(int world_size, const std::string& backend) {
  const auto context = require_context("regroup");
  const std::string& later = backend.empty() || backend == "auto" ? context->backend() : backend;
  context->resize(world_size, later);
  if (const auto world = session_world()) world->options.world_size = world_size, world->options.backend = later;
}

int64_t abort_count() {
  const auto context = current_context();
  return context ? context->abort_count() : 0;
}

void set_session_members(const RankSet& members) {
  const auto context = current_context();
  const auto world = session_world();
  if (!context || !world) return;
  world->options.members = members.empty() ? RankSet::all(world->options.world_size) : members;
  context->set_default_ranks(world->options.members);
}

std::optional<RankNumber> rank_number() {
  if (!current_context()) return std::nullopt;
  return RankNumber{.rank = get_rank(), .world_size = get_world_size()};
}

bool needs_regroup() {
  const auto context = current_context();
  return context && context->needs_regroup();
}

int next_group_number() {
  const auto context = current_context();
  return context ? context->next_group_number() : 1;
}

void set_next_group_number(int number) {
  if (const auto context = current_context()) context->set_next_group_number(number);
}

namespace {
constexpr size_t kSpans = 1000;
std::mutex spans_mutex;
std::deque<CellSpan> spans;
std::unordered_map<int64_t, int64_t> numbers;  // of cells that people call otherwise

void note_cell(int64_t cell) {
  const std::lock_guard lock(spans_mutex);
  const bool runs = !spans.empty() && spans.back().end_ns == 0;
  if (runs && spans.back().cell == cell) return;  // another step of it
  const int64_t now = monotonic_ns();
  if (runs) spans.back().end_ns = now;
  if (cell == 0) return;
  if (spans.size() == kSpans) spans.pop_front();
  spans.push_back({.cell = cell, .begin_ns = now});
}
}  // namespace

void set_thread_context(int64_t cell, int64_t step) {
  note_cell(cell);
  if (const auto context = current_context()) context->log()->set_context(cell, step);
}

void name_cell(int64_t cell, int64_t number) {
  if (number == cell) return;
  const std::lock_guard lock(spans_mutex);
  numbers[cell] = number;
}

int64_t cell_number(int64_t cell) {
  const std::lock_guard lock(spans_mutex);
  const auto found = numbers.find(cell);
  return found == numbers.end() ? cell : found->second;
}

std::vector<CellSpan> cell_spans() {
  const std::lock_guard lock(spans_mutex);
  return {spans.begin(), spans.end()};
}

bool register_code_range(int64_t cell, const void* begin, size_t size) {
  if (const auto world = session_world()) world->code[cell] = {reinterpret_cast<uint64_t>(begin), size};
  const auto context = current_context();
  return context && context->log()->add_code_range(cell, reinterpret_cast<uint64_t>(begin), size);
}

std::map<std::string, int64_t> progress() {
  const auto context = current_context();
  return context ? CollectiveLogReader(context->log()->mapping()).progress() : std::map<std::string, int64_t>{};
}

namespace {
/// The log then says how far collectives on devices are now.
std::shared_ptr<RankContext> context_after_look() {
  auto context = current_context();
  if (context) context->log()->device_progress().look();
  return context;
}
}  // namespace

std::optional<CollectiveRecord> current_collective() {
  const auto context = context_after_look();
  if (!context) return std::nullopt;
  auto in_flight = CollectiveLogReader(context->log()->mapping()).in_flight();
  if (in_flight.empty()) return std::nullopt;
  return in_flight.front();
}

std::vector<CollectiveRecord> collectives_in_flight() {
  const auto context = context_after_look();
  return context ? CollectiveLogReader(context->log()->mapping()).in_flight() : std::vector<CollectiveRecord>{};
}

std::vector<CollectiveRecord> last_collectives(size_t count) {
  const auto context = context_after_look();
  return context ? CollectiveLogReader(context->log()->mapping()).last(count) : std::vector<CollectiveRecord>{};
}

std::vector<std::pair<std::string, int>> communicator_errors() {
  const auto context = current_context();
  return context ? context->communicator_errors() : std::vector<std::pair<std::string, int>>{};
}

void watch_long_waits(double limit_s, std::function<void()> wake) {
  long_wait_watch().limit_s = limit_s;
  long_wait_watch().wake = std::move(wake);
}

LongWaits::Look long_waits() {
  const auto context = context_after_look();  // keeps the log while it is read
  LongWaits* const watch = context ? context->log()->long_waits() : nullptr;
  return watch ? watch->look(monotonic_ns()) : LongWaits::Look{};
}

uint64_t code_address(int64_t cell, uint64_t offset) {
  const auto context = current_context();
  return context ? CollectiveLogReader(context->log()->mapping()).code_address(cell, offset) : 0;
}

void peers_left(int64_t cell, const RankSet& ranks, const std::map<std::string, int64_t>& progress) {
  const auto context = current_context();
  if (!context) return;
  context->watch().peers_left(cell, ranks, progress);
  for (const int rank : ranks) context->rank_left(cell, rank);
}

void set_waiting_callback(std::function<void(const CollectiveRecord& record, const RankSet& missing)> callback) {
  std::lock_guard lock(waiting_callback().mutex);
  waiting_callback().callback = callback;
  if (const auto context = current_context()) context->watch().set_callback(std::move(callback));
}

}  // namespace lockstep::dist
