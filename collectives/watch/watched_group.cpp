#include "collectives/watch/watched_group.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "collectives/log/meetings.h"
#include "collectives/transport/transport_text.h"
#include "collectives/watch/collective_mismatch.h"

namespace lockstep::dist {

using namespace log_layout;

namespace {
// How long the rank that saw a mismatch waits for the others to come to the same number, so that every rank's message
// can name all calls; and how long a rank whose connection was closed waits for the death of a peer as its cause.
constexpr auto kPatience = std::chrono::milliseconds(250);
constexpr std::chrono::milliseconds kToldPatience{1000};  // for those who compare calls of different machines
// How long a group that is closed waits for collectives that have not ended: those on a device, and those that a peer
// may not have entered. Then it shuts the connections.
constexpr std::chrono::milliseconds kCloseTimeout{1500};
constexpr size_t kTagCapacity = 1 << 16;  // of which sends and receives are counted

void wake(Atomic<uint32_t>& word) {
  word.fetch_add(1);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_change(Atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most) {
  timespec timeout{.tv_sec = at_most.count() / 1'000'000'000, .tv_nsec = at_most.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}
}  // namespace

WatchedGroup::WatchedGroup(Identity identity, std::shared_ptr<CollectiveLog> log, std::shared_ptr<HangWatch> watch,
                           std::shared_ptr<AbortFlag> abort, bool check)
    : identity_(std::move(identity)),
      log_(std::move(log)),
      watch_(std::move(watch)),
      abort_(std::move(abort)),
      check_(check),
      slot_(log_->add_group(identity_.name, identity_.ranks, identity_.group_rank, 0)),
      message_(fmt::format("group {} is not connected yet. {}", identity_.name, identity_.advice)),
      device_works_(std::make_shared<DeviceWorks>(
          [this](const DeviceOperation& operation, DeviceEnd end) { device_ended(operation, end); })) {
  if (check_) log_->mapping().header().compares = 1;
}

WatchedGroup::~WatchedGroup() {
  device_works_->close();
  log_->remove_group(slot_);
}

std::shared_ptr<BackendConnector> WatchedGroup::connector() const {
  std::lock_guard lock(mutex_);
  return connector_;
}

bool WatchedGroup::lost_writes() const {
  std::lock_guard lock(mutex_);
  return connector_ && connector_->lost_writes();
}

void WatchedGroup::prepare(std::shared_ptr<BackendConnector> new_connector) {
  std::shared_ptr<BackendConnector> connector = std::move(new_connector);
  if (connector)
    connector->on_connection_end([group = weak_from_this(), of = connector.get()] {
      if (const auto self = group.lock()) self->connection_ended(of);
    });
  std::lock_guard lock(mutex_);
  live_ = false;
  incarnation_ = 0;
  std::swap(connector_, connector);  // the old one is destroyed after the lock: its thread may be asking for it
  peers_.clear();
  if (!connector_) return;  // closed: peers may still read the log
  // This comes before the peers know of this generation: what they read in the log from now on belongs to it. A
  // mismatch stays, since a peer may not have read it yet; its generation stands beside it.
  slot_in_log().cause = BreakCause::none;
  slot_in_log().shared_wait = log_layout::kNoSharedMemory;  // the transport says otherwise
}

namespace {
/// Holds the groups of this process by incarnation. Never destroyed: agents' threads may outlive the library's objects.
struct Incarnations {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<WatchedGroup>> groups;
};
Incarnations& incarnations() {
  static auto* all = new Incarnations;
  return *all;
}
}  // namespace

bool tell_of_mismatch(uint64_t incarnation, const CollectiveMismatch& mismatch,
                      std::chrono::milliseconds patience) noexcept {
  std::shared_ptr<WatchedGroup> group;
  {
    Incarnations& all = incarnations();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.groups.find(incarnation); found != all.groups.end()) group = found->second.lock();
  }
  return group && group->tell_of_mismatch(incarnation, mismatch, patience);
}

void WatchedGroup::connected(std::vector<PeerInGroup> peers, int64_t seq, int64_t generation, uint64_t incarnation) {
  generation_ = generation;
  // A reader that sees the new number reads the new entry with it.
  slot_in_log().incarnation = 0;
  slot_in_log().first_entry = log_->mapping().header().next_entry.load();
  slot_in_log().incarnation = incarnation;
  if (incarnation != 0) {
    Incarnations& all = incarnations();
    const std::lock_guard lock(all.mutex);
    const std::weak_ptr<WatchedGroup> self = weak_from_this();
    std::erase_if(all.groups, [&](const auto& each) {  // without lock(): this might then be who destroys the group
      return each.second.expired() || (!each.second.owner_before(self) && !self.owner_before(each.second));
    });
    all.groups[incarnation] = self;
  }
  if (slot_in_log().generation != generation) slot_in_log().last_before = seq;  // else peers are added
  slot_in_log().generation = generation;
  slot_in_log().last_entered = seq;
  slot_in_log().clear_counts();  // what was sent before and never received is lost
  tag_counts_.clear();
  std::shared_ptr<BackendConnector> connector;
  {
    std::lock_guard lock(mutex_);
    peers_ = std::move(peers);
    device_works_->take_failed();  // of the last generation; whoever was at it has ended
    device_failed_ = false;
    message_.clear();
    incarnation_ = incarnation;
    told_.reset();
    is_told_ = false;
    broken_off_ = false;
    slot_in_log().state = GroupState::live;
    live_ = true;
    connector = connector_;
  }
  // A connection's end that was reported before the group was live is not reported again.
  const BackendConfig::Part* part = identity_.backend.device_part();
  if (part && !part->works_as_gloo() && connector && connector->lost_connection()) connection_ended(connector.get());
}

void WatchedGroup::break_off(BreakCause cause, const std::string& message, const BackendConnector* only) noexcept {
  std::shared_ptr<BackendConnector> connector;
  {
    std::lock_guard lock(mutex_);
    if (only && connector_.get() != only) return;
    // The first cause is the one that errors name, until the group is aborted or excluded on purpose.
    if (live_.exchange(false) || cause == BreakCause::aborted || cause == BreakCause::excluded || message_.empty())
      message_ = message;
    Group& group = slot_in_log();
    BreakCause none = BreakCause::none;
    group.cause.compare_exchange_strong(none, cause);
    group.state = GroupState::broken;
    connector = connector_;
    broken_off_ = true;
    told_changed_.notify_all();
  }
  for (const auto& operation : device_works_->cut())
    for (const Entered& entered : operation->entered) finish(entered, EntryState::failed);
  if (connector) connector->interrupt();  // after the cause is written, which the peers read
}

bool WatchedGroup::has_entered(const PeerInGroup& peer, int64_t seq) const {
  return peer.peer.log && peer.peer.log->group(peer.slot).last_entered.load(std::memory_order_seq_cst) >= seq;
}

bool WatchedGroup::has_stuck_collective() {
  constexpr auto kPause = std::chrono::milliseconds(2);
  const auto begin = std::chrono::steady_clock::now();
  Atomic<uint32_t>& arrivals = log_->mapping().header().arrivals;
  for (;;) {
    device_works_->refresh();
    device_progress().look();
    bool any = false, all_run = true, has_message = false;
    for (const CollectiveRecord& record : CollectiveLogReader(log_->mapping()).in_flight()) {
      if (record.group != std::string_view(slot_in_log().name)) continue;
      if (record.point_to_point && !record.on_device) {  // it is logged as done when somebody waits for it
        has_message = true;
        continue;
      }
      any = true;
      all_run &= !record.on_device && peers_.size() + 1 == identity_.ranks.size() &&
                 std::ranges::all_of(peers_, [&](const PeerInGroup& peer) {
                   return has_entered(peer, record.seq) && peer.peer.alive();
                 });
    }
    if (!any) return has_message;
    if (is_aborted()) return true;  // also at an interrupt, which aborts
    // One that all ranks have entered moves its data, however long that takes.
    if (std::chrono::steady_clock::now() - begin >= (all_run ? identity_.timeout : kCloseTimeout)) return true;
    wait_for_change(arrivals, arrivals.load(), kPause);  // no sleep: at an interrupt a worker's throws
  }
}

bool WatchedGroup::is_aborted() const {
  std::lock_guard lock(abort_->mutex);
  return abort_->set;
}

void WatchedGroup::close() noexcept {
  // Peers may still be reading what this rank has sent, so its connections are not shut down here, unless a collective
  // of this rank is stuck: the transport would wait for it.
  if (has_stuck_collective()) {
    break_off(BreakCause::excluded, fmt::format("group {} was destroyed", identity_.name));
  } else {
    std::lock_guard lock(mutex_);
    live_ = false;
    message_ = fmt::format("group {} was destroyed", identity_.name);
  }
  slot_in_log().state = GroupState::closed;
}

bool WatchedGroup::tell_of_mismatch(uint64_t incarnation, const CollectiveMismatch& mismatch,
                                    std::chrono::milliseconds patience) noexcept {
  std::shared_ptr<BackendConnector> connector;
  {
    std::unique_lock lock(mutex_);
    if (incarnation_ != incarnation || !connector_) return false;
    if (told_) return true;
    told_ = mismatch;
    is_told_ = true;
    told_changed_.notify_all();
    connector = connector_;
    told_changed_.wait_for(lock, patience, [this] { return broken_off_.load(); });
  }
  break_off(BreakCause::mismatch, told_words(mismatch), connector.get());
  return true;
}

std::string WatchedGroup::told_words(const CollectiveMismatch& mismatch) const {
  return fmt::format("group {} was shut down because {}. {}", identity_.name, mismatch.what(), identity_.advice);
}

void WatchedGroup::throw_if_told() {
  std::optional<CollectiveMismatch> told;
  {
    const std::lock_guard lock(mutex_);
    told = told_;
  }
  if (!told) return;
  if (!broken_off_) break_off(BreakCause::mismatch, told_words(*told));
  throw CollectiveMismatch(*told);
}

void WatchedGroup::throw_unusable() {
  {
    std::lock_guard lock(abort_->mutex);
    if (abort_->set)
      throw Aborted(fmt::format("the collectives of this rank were aborted: {}. {}", abort_->reason, identity_.advice),
                    abort_->reason);
  }
  throw_if_told();
  std::lock_guard lock(mutex_);
  throw Error(message_.empty() ? fmt::format("group {} is not connected. {}", identity_.name, identity_.advice)
                               : message_);
}

Entered WatchedGroup::enter(const EntryFields& fields) {
  note_meeting();
  if (!live_.load(std::memory_order_acquire)) throw_unusable();
  if (is_told_.load(std::memory_order_acquire)) throw_if_told();
  Group& group = slot_in_log();
  const int64_t seq = group.last_entered.load(std::memory_order_relaxed) + 1;
  const Entered entered{log_->begin(slot_, seq, fields), seq};
  publish(entered, fields.signature);
  group.last_entered.store(seq,
                           std::memory_order_seq_cst);  // seq_cst: what follows reads the peers' after this is visible
  if (watch_->active()) watch_->entered(entered.entry);
  if (!check_) return entered;

  bool agree = true;
  for (const PeerInGroup& peer : peers_)
    if (peer.peer.log && !agrees(peer, entered, fields.signature)) agree = false;
  if (agree) return entered;

  // Nothing was sent. The ranks that have entered wait for this one and are freed when the connections close. Before
  // that, the others get time to come, so that all calls are named.
  log_->mapping().signature(slot_, seq).mismatch.store(1, std::memory_order_seq_cst);
  finish(entered, EntryState::failed);
  wait_for_arrivals(seq);
  group.mismatch_generation = generation_;
  group.mismatch_seq = seq;
  raise_mismatch(seq);
}

Entered WatchedGroup::enter_point_to_point(EntryFields fields, int peer_group_rank, bool sends) {
  note_meeting();
  if (!live_.load(std::memory_order_acquire)) throw_unusable();
  if (is_told_.load(std::memory_order_acquire)) throw_if_told();
  Group& group = slot_in_log();
  int64_t seq = 0;
  if (peer_group_rank < 0) {
    group.received_from_any.fetch_add(1);
  } else if (peer_group_rank < kRanksPerGroup) {
    seq = (sends ? group.sent : group.received)[peer_group_rank].fetch_add(1) + 1;
  }
  // A program that gives every message another tag must not fill the memory. NCCL knows no tags: there the order decides.
  const bool is_on_device = (fields.flags & kOnDevice) != 0;
  const std::tuple key{peer_group_rank, sends, is_on_device ? std::nullopt : std::optional(fields.tag)};
  if (tag_counts_.size() < kTagCapacity || tag_counts_.contains(key)) fields.tag_seq = ++tag_counts_[key];
  const Entered entered{log_->begin(slot_, seq, fields), seq};
  if (!check_ || fields.tag_seq == 0 || peer_group_rank < 0) return entered;
  publish_message(entered.entry);
  if (message_agrees(entered.entry, peer_group_rank)) return entered;
  // The other side waits in the transport, and nothing was sent.
  finish(entered, EntryState::failed);
  group.mismatch_generation = generation_;
  group.mismatch_seq = -1 - static_cast<int64_t>(entered.entry);
  raise_mismatch(group.mismatch_seq);
}

namespace {
bool is_send(const Entry& entry) {
  const auto op = static_cast<CollectiveOp>(entry.op);
  return op == CollectiveOp::send || op == CollectiveOp::send_object_list;
}

/// Names a message among all that a rank has sent or received: by the group, the rank at the other side, the direction,
/// the tag, the number with that tag, and the generation of the connections, after which numbers begin again. NCCL does
/// not know tags: there the order decides.
uint64_t message_key(uint32_t slot, int peer, bool sends, const Entry& entry, int64_t generation) {
  const bool by_order = (entry.flags & kOnDevice) != 0;
  const int64_t tag = by_order ? -1 : entry.tag;
  uint64_t key = 0;
  for (const int64_t part : {int64_t{slot}, int64_t{peer}, int64_t{sends}, tag, entry.tag_seq, generation}) {
    key = (key ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15ull;
    key ^= key >> 29;
  }
  return key == 0 ? 1 : key;  // 0: an empty slot
}
}  // namespace

void WatchedGroup::publish_message(uint64_t number) {
  const Entry& entry = log_->mapping().entry(number);
  const uint64_t key = message_key(slot_, entry.root, is_send(entry), entry, generation_);
  Message& message = log_->mapping().message(key);
  message.key.store(0, std::memory_order_relaxed);
  message.entry.store(number, std::memory_order_release);
  message.key.store(key, std::memory_order_seq_cst);  // what follows reads the peer's after this is visible
}

std::optional<uint64_t> WatchedGroup::other_side(const Entry& own, int from, const LogMapping& log,
                                                 uint32_t slot) const {
  const uint64_t key = message_key(slot, from, !is_send(own), own, generation_);
  const Message& message = log.message(key);
  if (message.key.load(std::memory_order_seq_cst) != key) return std::nullopt;
  const uint64_t entry = message.entry.load(std::memory_order_acquire);
  const bool same = message.key.load(std::memory_order_acquire) == key;
  return same && log.entry(entry).sequence.load(std::memory_order_acquire) == 2 * entry + 2 ? std::optional(entry)
                                                                                            : std::nullopt;
}

bool WatchedGroup::message_agrees(uint64_t number, int peer_group_rank) const {
  const auto peer = std::ranges::find(peers_, peer_group_rank, &PeerInGroup::group_rank);
  if (peer == peers_.end() || !peer->peer.log) return true;
  const LogMapping& log = *peer->peer.log;
  const Entry& own = log_->mapping().entry(number);
  const auto entry = other_side(own, global_rank(identity_.group_rank), log, peer->slot);
  const Group& receiver = is_send(own) ? log.group(peer->slot) : slot_in_log();
  if (!entry || receiver.received_from_any.load() > 0) return true;
  const Entry& theirs = log.entry(*entry);
  constexpr uint8_t kObjects = 255;  // they have no dtype, and their sizes are sent, too
  return own.dtype == theirs.dtype && (own.dtype == kObjects || own.bytes == theirs.bytes);
}

void WatchedGroup::publish(const Entered& entered, uint64_t signature) {
  Signature& own = log_->mapping().signature(slot_, entered.seq);
  own.seq.store(0, std::memory_order_relaxed);
  own.signature.store(signature, std::memory_order_release);
  own.entry.store(entered.entry, std::memory_order_relaxed);
  own.mismatch.store(0, std::memory_order_relaxed);
  own.seq.store(entered.seq, std::memory_order_release);
}

std::optional<uint64_t> WatchedGroup::entry_of_peer(const PeerInGroup& peer, int64_t seq) const {
  const LogMapping& log = *peer.peer.log;
  const Signature& theirs = log.signature(peer.slot, seq);
  if (theirs.seq.load(std::memory_order_seq_cst) == seq) return theirs.entry.load(std::memory_order_acquire);
  // The peer is far ahead of this rank (it can be in broadcasts that it sends): its signature is overwritten, but the
  // entry may still be there.
  if (log.group(peer.slot).last_entered.load() < seq) return std::nullopt;
  const uint64_t end = log.header().next_entry.load();
  for (uint64_t i = end - std::min<uint64_t>(end, kEntryCapacity); i < end; ++i) {
    const Entry& entry = log.entry(i);
    if (entry.sequence.load(std::memory_order_acquire) == 2 * i + 2 && entry.group == peer.slot && entry.seq == seq &&
        !(entry.flags & kPointToPoint))
      return i;
  }
  return std::nullopt;
}

bool WatchedGroup::agrees(const PeerInGroup& peer, const Entered& entered, uint64_t signature) const {
  const LogMapping& log = *peer.peer.log;
  const Signature& theirs = log.signature(peer.slot, entered.seq);
  const int64_t seq = theirs.seq.load(std::memory_order_seq_cst);
  if (seq < entered.seq) return true;  // has not come yet: it will look at ours
  if (seq > entered.seq) {
    const auto entry = entry_of_peer(peer, entered.seq);
    return !entry || (log.entry(*entry).signature == signature && splits_agree(peer, entered, *entry));
  }
  const uint64_t their_signature = theirs.signature.load(std::memory_order_acquire);
  const uint64_t their_entry = theirs.entry.load(std::memory_order_acquire);
  if (theirs.mismatch.load(std::memory_order_seq_cst)) {
    wake(const_cast<Header&>(log.header()).arrivals);
    return false;
  }
  return their_signature == signature && splits_agree(peer, entered, their_entry);
}

bool WatchedGroup::splits_agree(const PeerInGroup& peer, const Entered& entered, uint64_t peer_entry) const {
  const LogMapping& own_log = log_->mapping();
  const LogMapping& peer_log = *peer.peer.log;
  const Entry& own = own_log.entry(entered.entry);
  const Entry& theirs = peer_log.entry(peer_entry);
  const uint32_t size = static_cast<uint32_t>(identity_.ranks.size());
  if (own.word_count != 2 * size || theirs.word_count != 2 * size) return own.word_count == theirs.word_count;
  const auto word = [](const LogMapping& log, const Entry& entry, uint32_t index) {
    return log.word(entry.word_begin + index).load(std::memory_order_relaxed);
  };
  const uint32_t me = static_cast<uint32_t>(identity_.group_rank), them = static_cast<uint32_t>(peer.group_rank);
  return word(own_log, own, them) == word(peer_log, theirs, size + me) &&
         word(own_log, own, size + them) == word(peer_log, theirs, me);
}

void WatchedGroup::wait_for_arrivals(int64_t seq) const {
  Atomic<uint32_t>& arrivals = log_->mapping().header().arrivals;
  const int64_t deadline = monotonic_ns() + std::chrono::nanoseconds(kPatience).count();
  while (live_) {
    const uint32_t seen = arrivals.load();
    bool all = true;
    for (const PeerInGroup& peer : peers_)
      if (peer.peer.log && !has_entered(peer, seq)) all = false;
    const int64_t left = deadline - monotonic_ns();
    if (all || left <= 0) return;
    wait_for_change(arrivals, seen, std::chrono::nanoseconds(left));
  }
}

int64_t WatchedGroup::mismatch_seen_by_anyone() const {
  const auto seen_in = [&](const Group& group) {
    const int64_t seq = group.mismatch_seq.load();
    return group.mismatch_generation.load() == generation_ ? seq : 0;
  };
  if (const int64_t seq = seen_in(slot_in_log())) return seq;
  for (const PeerInGroup& peer : peers_)
    if (peer.peer.log)
      if (const int64_t seq = seen_in(peer.peer.log->group(peer.slot))) return seq;
  return 0;
}

std::set<int64_t> WatchedGroup::where_ranks_are() const {
  std::set<int64_t> calls{slot_in_log().last_entered.load(std::memory_order_seq_cst)};
  for (const PeerInGroup& peer : peers_)
    if (peer.peer.log) calls.insert(peer.peer.log->group(peer.slot).last_entered.load(std::memory_order_seq_cst));
  return calls;
}

void WatchedGroup::throw_if_mismatched() {
  throw_if_told();
  if (const int64_t seq = mismatch_seen_by_anyone()) raise_mismatch(seq);
}

void WatchedGroup::raise_message_mismatch() {
  struct Side {
    int rank;
    const LogMapping* log;
    uint32_t slot;
  };
  std::vector<Side> sides{{global_rank(identity_.group_rank), &log_->mapping(), slot_}};
  for (const PeerInGroup& peer : peers_)
    if (peer.peer.log) sides.push_back({peer.peer.rank, peer.peer.log.get(), peer.slot});
  std::ranges::sort(sides, {}, &Side::rank);  // so that all ranks name the same message
  const CollectiveLogReader reader(log_->mapping());
  const auto places = [&](const CollectiveRecord& call) { return place_of(call, reader); };
  for (const Side& seer : sides) {
    const Group& group = seer.log->group(seer.slot);
    const int64_t seen = group.mismatch_seq.load();
    if (seen >= 0 || group.mismatch_generation.load() != generation_) continue;
    const auto record = CollectiveLogReader(*seer.log).record(static_cast<uint64_t>(-1 - seen));
    const auto other = record ? std::ranges::find(sides, record->root, &Side::rank) : sides.end();
    if (other == sides.end()) continue;
    const auto entry = other_side(seer.log->entry(record->entry), seer.rank, *other->log, other->slot);
    const auto theirs = entry ? CollectiveLogReader(*other->log).record(*entry) : std::nullopt;
    if (!theirs) continue;
    const bool sent = is_send(*record);
    throw_mismatch(make_message_mismatch(sent ? seer.rank : other->rank, sent ? *record : *theirs,
                                         sent ? other->rank : seer.rank, sent ? *theirs : *record, places),
                   seen);
  }
  throw Error(
      fmt::format("group {} was shut down because a send and its recv differ. {}", identity_.name, identity_.advice));
}

void WatchedGroup::throw_mismatch(const CollectiveMismatch& mismatch, int64_t seq) {
  if (mismatch_hook_) mismatch_hook_(seq, where_ranks_are());
  break_off(BreakCause::mismatch,
            fmt::format("group {} was shut down because {}. {}", identity_.name, mismatch.what(), identity_.advice));
  throw mismatch;
}

void WatchedGroup::raise_mismatch(int64_t seq) {
  if (seq < 0) raise_message_mismatch();
  constexpr size_t kRecent = 200;  // entries in which the usual order of the calls is looked for
  std::map<int, CalledHere> called;
  RankSet missing;
  const CollectiveLogReader reader(log_->mapping());
  const Signature& own = log_->mapping().signature(slot_, seq);
  if (own.seq.load() == seq) {
    if (auto record = reader.record(own.entry))
      called[global_rank(identity_.group_rank)] = {*record, reader.last(kRecent)};
  } else {
    missing.insert(global_rank(identity_.group_rank));
  }
  for (const PeerInGroup& peer : peers_) {
    if (!peer.peer.log) continue;
    const auto entry = entry_of_peer(peer, seq);
    const CollectiveLogReader theirs(*peer.peer.log);
    const auto record = entry ? theirs.record(*entry) : std::nullopt;
    if (record)
      called[peer.peer.rank] = {*record, theirs.last(kRecent)};
    else
      missing.insert(peer.peer.rank);
  }
  const auto places = [&](const CollectiveRecord& call) { return place_of(call, reader); };
  throw_mismatch(make_mismatch(identity_.name, seq, called, missing, places), seq);
}

void WatchedGroup::fail(const Entered& entered, const std::exception_ptr& error,
                        std::optional<std::chrono::milliseconds> own_limit) {
  finish(entered, EntryState::failed);
  const auto record = CollectiveLogReader(log_->mapping()).record(entered.entry);
  const std::string what =
      fmt::format("{}, #{} of group {}", record ? describe(*record) : "a collective", entered.seq, identity_.name);
  const auto throw_if_aborted = [&] {
    std::lock_guard lock(abort_->mutex);
    if (abort_->set) throw Aborted(fmt::format("{} was aborted: {}", what, abort_->reason), abort_->reason);
  };
  throw_if_aborted();
  throw_if_mismatched();
  // An error of the transport is a connection that ended, or else a time limit. Past its limit a call has timed out,
  // too: a peer with the same limit may have closed its connections by now.
  const auto transport = connector();
  const bool io = !error || own_limit || (transport && transport->is_transport_error(error));
  const bool lost = io && (!error || (transport && transport->lost_connection()));
  const std::chrono::nanoseconds limit = own_limit.value_or(identity_.timeout);
  const bool late = record && monotonic_ns() - record->entered_ns >= limit.count();
  if (error && io && (late || !lost)) {
    RankSet missing;
    for (const PeerInGroup& peer : peers_)
      if (peer.peer.log && !(record && record->point_to_point) &&
          peer.peer.log->group(peer.slot).last_entered < entered.seq)
        missing.insert(peer.peer.rank);
    const std::string message = fmt::format(
        "{} did not end within its time limit of {} s{}. {}", what, static_cast<double>(limit.count()) / 1e9,
        missing.empty() ? "" : fmt::format(": {} never called it", missing.words()), identity_.advice);
    break_off(BreakCause::failed, message);
    throw TimedOut(message, missing);
  }
  if (lost) throw_peer_left(what);
  // The transport rejects what this rank did. The other ranks wait for it: breaking off frees them.
  const std::string message = fmt::format("{} failed: {}. {}", what, transport_text(error), identity_.advice);
  break_off(BreakCause::failed, message);
  throw Error(message);
}

WatchedGroup::Departures WatchedGroup::departures(const std::vector<PeerInGroup>& peers) const {
  Departures found;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt == 1) {
      std::vector<Peer> processes;
      for (const PeerInGroup& peer : peers) processes.push_back(peer.peer);
      wait_for_death(processes, kPatience);
    }
    for (const PeerInGroup& peer : peers) {
      if (!peer.peer.log) continue;
      const Group& theirs = peer.peer.log->group(peer.slot);
      if (!peer.peer.alive()) {
        found.dead.insert(peer.peer.rank);
      } else if (!theirs.open() || std::string_view(theirs.name) != identity_.name) {
        found.closed.insert(peer.peer.rank);
      } else if (theirs.cause.load() == BreakCause::aborted) {
        found.aborted.insert(peer.peer.rank);
        found.reason.assign(peer.peer.log->header().reason,
                            strnlen(peer.peer.log->header().reason, sizeof(Header::reason)));
      } else if (theirs.state.load() == GroupState::broken) {
        found.failed.insert(peer.peer.rank);
      }
    }
    if (!found.dead.empty() || !found.aborted.empty() || !found.closed.empty()) break;
  }
  return found;
}

std::pair<RankSet, std::string> WatchedGroup::Departures::cause() const {
  if (!dead.empty()) return {dead, "the process has died"};
  if (!aborted.empty()) return {aborted, fmt::format("aborted ({})", reason)};
  if (!closed.empty()) return {closed, "it has closed the group"};
  if (!failed.empty()) return {failed, "its part failed"};
  return {};
}

void WatchedGroup::throw_peer_left(const std::string& what) {
  Departures found = departures(peers_);
  // Ranks may have left because of a mismatch with those of another machine, of which this one hears later.
  const bool is_explained = !found.dead.empty() || !found.aborted.empty() || !found.closed.empty();
  const bool may_be_told = check_ && !is_explained && log_->mapping().header().calls_are_read.load() != 0 &&
                           std::ranges::any_of(peers_, [](const PeerInGroup& peer) { return !peer.peer.log; });
  if (may_be_told) {
    std::unique_lock lock(mutex_);
    told_changed_.wait_for(lock, kToldPatience, [this] { return told_ || broken_off_; });
  }
  throw_if_mismatched();
  if (may_be_told) found = departures(peers_);
  const auto [left, why] = found.cause();
  const std::string message =
      left.empty() ? fmt::format("a rank left {}: its connection closed. {}", what, identity_.advice)
                   : fmt::format("{} left the collective {}: {}. {}", left.words(), what, why, identity_.advice);
  break_off(BreakCause::failed, message);
  throw PeerLeft(message, left);
}

// Serves transports whose operations do not end when a peer leaves. A peer that has closed the group was done with it:
// what this rank still waits for on its device may come yet.
void WatchedGroup::connection_ended(const BackendConnector* of) {
  std::vector<PeerInGroup> peers;
  {
    std::lock_guard lock(mutex_);
    if (!live_ || connector_.get() != of) return;
    peers = peers_;
  }
  const Departures found = departures(peers);
  if (!found.closed.empty() && found.dead.empty() && found.aborted.empty() && found.failed.empty()) return;
  const auto [left, why] = found.cause();
  const std::string who = left.empty() ? "a rank" : left.words();
  break_off(BreakCause::failed,
            fmt::format("group {} was shut down because {} left it{}{}. {}", identity_.name, who,
                        why.empty() ? "" : ": ", why, identity_.advice),
            of);
}

void WatchedGroup::device_ended(const DeviceOperation& operation, DeviceEnd end) {
  for (const Entered& entered : operation.entered)
    finish(entered, end == DeviceEnd::done ? EntryState::done : EntryState::failed);
  if (end == DeviceEnd::done || !live_) return;
  device_failed_ = true;
  // fail() says more on the rank's own thread.
  break_off(BreakCause::failed,
            fmt::format("group {} was shut down because a collective {}. {}", identity_.name,
                        end == DeviceEnd::timeout ? "did not end within its time limit" : "failed on its device",
                        identity_.advice));
}

void WatchedGroup::fail(const DeviceOperation& operation) {
  const Entered& entered = operation.entered.front();
  for (const Entered& each : operation.entered) finish(each, EntryState::failed);
  switch (operation.end.load()) {
    case DeviceEnd::timeout:
      fail(entered, std::make_exception_ptr(Error("time limit")), identity_.timeout);
    case DeviceEnd::error:
      // The error is this rank's device's, or a peer is gone.
      if (const Departures found = departures(peers_); !found.dead.empty() || !found.aborted.empty())
        fail(entered, nullptr);
      fail(entered, operation.error ? operation.error
                                    : std::make_exception_ptr(Error("the transport reports an error on the device")));
    default:
      if (device_failed_) throw_unusable();  // another operation of this rank has cut it off
      fail(entered, nullptr);
  }
}

void WatchedGroup::set_excluded(bool excluded) {
  excluded_ = excluded;
  device_works_->take_failed();  // as in connected(), which does not come
}

void WatchedGroup::check_device_works() {
  device_works_->refresh();
  const auto failed = device_works_->take_failed();
  if (failed.empty()) return;
  // An operation that failed by itself is the cause of the others' end.
  const auto cause = std::ranges::find_if(failed, [](const auto& each) { return each->end != DeviceEnd::cut; });
  fail(cause == failed.end() ? *failed.front() : **cause);
}

}  // namespace lockstep::dist
