#include "collectives/log/collective_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "collectives/log/process_identity.h"
#include "protocol/blocked_signals.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

using namespace log_layout;

int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

namespace {
int64_t realtime_minus_monotonic() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec - monotonic_ns();
}

int32_t this_thread() {
  static thread_local const int32_t number = static_cast<int32_t>(gettid());
  return number;
}

std::string group_name(const Group& group) { return {group.name, strnlen(group.name, sizeof group.name)}; }

/// Takes the room that the file needs. Returns 0, or the errno. On a tmpfs a signal of the program would end that with
/// EINTR, and trying again fails where a timer sends one again and again.
int reserve(int fd) {
  const BlockedSignals signals;
  return posix_fallocate(fd, 0, kFileBytes);
}

}  // namespace

LogMapping LogMapping::create(const std::string& path, int rank, int world_size) {
  const std::string what = path.empty() ? "in anonymous memory" : path;
  if (!path.empty()) unlink(path.c_str());  // a reader of the old one keeps its mapping
  Descriptor fd(path.empty() ? memfd_create("lockstep-collectives", MFD_CLOEXEC)
                             : ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) throw Error(fmt::format("the collective log {} can't be made: {}", what, strerror(errno)));
  if (const int error = reserve(fd.get())) {
    if (!path.empty()) unlink(path.c_str());
    throw Error(fmt::format("the collective log {} can't be made: {} ({} MB are needed there)", what, strerror(error),
                            kFileBytes / 1'000'000 + 1));
  }
  LogMapping mapping(std::move(fd), what, path);
  madvise(mapping.base_ + kEntriesAt, sizeof(Entry) * kEntryCapacity, MADV_POPULATE_WRITE);  // no page faults later
  Header& header = mapping.header();
  header.version = kVersion;
  header.header_bytes = kHeaderBytes;
  header.group_bytes = sizeof(Group);
  header.signature_bytes = sizeof(Signature);
  header.entry_bytes = sizeof(Entry);
  header.code_range_bytes = sizeof(CodeRange);
  header.group_capacity = kGroupCapacity;
  header.signature_capacity = kSignatureCapacity;
  header.entry_capacity = kEntryCapacity;
  header.word_capacity = kWordCapacity;
  header.code_range_capacity = kCodeRangeCapacity;
  header.rank = rank;
  header.world_size = world_size;
  header.pid = getpid();
  header.process_start = process_start_time(getpid()).value_or(0);
  header.realtime_minus_monotonic = realtime_minus_monotonic();
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header.magic, kMagic, sizeof kMagic);  // last: a file with it is whole
  return mapping;
}

LogMapping LogMapping::open(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw Error(fmt::format("the collective log {} can't be opened: {}", path, strerror(errno)));
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || static_cast<size_t>(status.st_size) < kFileBytes)
    throw Error(fmt::format("{} is no collective log of this version: it is too short", path));
  LogMapping mapping(std::move(fd), path, path);
  const Header& header = mapping.header();
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) throw Error(fmt::format("{} is no collective log", path));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (header.version != kVersion || header.entry_bytes != sizeof(Entry) || header.entry_capacity != kEntryCapacity)
    throw Error(fmt::format("{} is a collective log of version {}, this program reads version {}", path, header.version,
                            kVersion));
  return mapping;
}

LogMapping::LogMapping(Descriptor fd, const std::string& what, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {
  void* base = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) throw Error(fmt::format("the collective log {} can't be mapped: {}", what, strerror(errno)));
  base_ = static_cast<std::byte*>(base);
}

LogMapping::~LogMapping() {
  if (base_) munmap(base_, kFileBytes);
}

Header& LogMapping::header() const { return *reinterpret_cast<Header*>(base_); }
Group& LogMapping::group(uint32_t slot) const { return reinterpret_cast<Group*>(base_ + kGroupsAt)[slot]; }
Signature& LogMapping::signature(uint32_t slot, int64_t seq) const {
  return reinterpret_cast<Signature*>(
      base_ + kSignaturesAt)[slot * kSignatureCapacity + static_cast<uint64_t>(seq) % kSignatureCapacity];
}
Entry& LogMapping::entry(uint64_t number) const {
  return reinterpret_cast<Entry*>(base_ + kEntriesAt)[number % kEntryCapacity];
}
CodeRange& LogMapping::code_range(uint32_t index) const {
  return reinterpret_cast<CodeRange*>(base_ + kCodeRangesAt)[index];
}
DeviceTimes& LogMapping::device_times(uint64_t entry) const {
  return reinterpret_cast<DeviceTimes*>(base_ + kDeviceTimesAt)[entry % kEntryCapacity];
}
Site& LogMapping::site(uint64_t number) const {
  return reinterpret_cast<Site*>(base_ + kSitesAt)[number % kSiteCapacity];
}
Message& LogMapping::message(uint64_t key) const {
  return reinterpret_cast<Message*>(base_ + kMessagesAt)[key % kMessageCapacity];
}
std::atomic<int64_t>& LogMapping::word(uint64_t number) const {
  return reinterpret_cast<std::atomic<int64_t>*>(base_ + kWordsAt)[number % kWordCapacity];
}
std::string LogMapping::shared_path() const {
  return path_.empty() ? fmt::format("/proc/{}/fd/{}", getpid(), fd_.get()) : path_;
}

uint32_t CollectiveLog::add_group(const std::string& name, const std::vector<int>& ranks, int group_rank,
                                  int64_t first_seq) {
  uint32_t slot = 0;
  while (slot < kGroupCapacity) {
    if (mapping_.group(slot).state.load() == GroupState::unused) break;
    ++slot;
  }
  if (slot == kGroupCapacity)
    throw Error(
        fmt::format("{} process groups are in use, which is the limit; end some with destroy_process_group(group)",
                    kGroupCapacity));
  Group& group = mapping_.group(slot);
  std::memset(group.name, 0, sizeof group.name);
  std::strncpy(group.name, name.c_str(), sizeof group.name - 1);
  group.set_ranks(ranks);
  group.group_rank = group_rank;
  group.clear_counts();
  group.shared_wait = kNoSharedMemory;
  for (uint32_t i = 0; i < kSignatureCapacity; ++i) mapping_.signature(slot, i).seq = 0;
  group.generation = 0;
  group.incarnation = group.first_entry = 0;
  group.last_entered = group.last_before = first_seq;
  group.mismatch_seq = 0;
  group.cause = BreakCause::none;
  group.state = GroupState::live;
  Header& header = mapping_.header();
  header.group_count = std::max<uint32_t>(header.group_count, slot + 1);
  return slot;
}

void CollectiveLog::remove_group(uint32_t slot) { mapping_.group(slot).state = GroupState::unused; }

uint64_t CollectiveLog::number_of_site(uint64_t address) {
  const std::lock_guard lock(sites_mutex_);
  const auto [found, fresh] = sites_.try_emplace(address, sites_.size() + 1);
  if (!fresh) return found->second;
  const CallPlace place = place_of_(address);
  if (place.file.empty() || !name_site(found->second, place)) found->second = 0;
  return found->second;
}

uint64_t CollectiveLog::begin(uint32_t group, int64_t seq, const EntryFields& fields) {
  Header& header = mapping_.header();
  const uint64_t site = place_of_ && fields.call_site ? number_of_site(fields.call_site) : 0;
  // seq_cst: LongWaits sees this entry, or entered() below sees that it has stopped looking.
  const uint64_t number = header.next_entry.fetch_add(1, std::memory_order_seq_cst);
  Entry& entry = mapping_.entry(number);
  entry.sequence.store(2 * number + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.state.store(number * 4, std::memory_order_relaxed);
  entry.done_ns.store(0, std::memory_order_relaxed);
  entry.entered_ns = monotonic_ns();
  entry.seq = seq;
  entry.call_site = site ? site : fields.call_site;
  entry.cell = header.cell.load(std::memory_order_relaxed);
  entry.step = header.step.load(std::memory_order_relaxed);
  entry.bytes = fields.bytes;
  entry.signature = fields.signature;
  entry.group = group;
  entry.root = fields.root;
  entry.tensor_count = fields.tensor_count;
  entry.op = static_cast<uint8_t>(fields.op);
  entry.dtype = fields.dtype;
  entry.reduce_op = fields.reduce_op;
  entry.dimensions = static_cast<uint8_t>(std::min<size_t>(fields.dimensions, 255));
  entry.flags = fields.flags | (site ? kNamedSite : 0);
  entry.tag = fields.tag;
  entry.tag_seq = fields.tag_seq;
  entry.thread = this_thread();
  entry.word_count = 0;
  if (fields.words) {
    const uint64_t first = header.next_word.fetch_add(fields.words->size(), std::memory_order_relaxed);
    for (size_t i = 0; i < fields.words->size(); ++i)
      mapping_.word(first + i).store((*fields.words)[i], std::memory_order_relaxed);
    entry.word_begin = first;
    entry.word_count = static_cast<uint32_t>(fields.words->size());
  }
  const size_t kept = std::min<size_t>(fields.dimensions, kShapeCapacity);
  for (size_t i = 0; i < kept; ++i) entry.shape[i] = fields.shape[i];
  std::memcpy(entry.group_name, mapping_.group(group).name, sizeof entry.group_name);
  entry.sequence.store(2 * number + 2, std::memory_order_release);
  if (long_waits_) long_waits_->entered();
  return number;
}

void finish_entry(const LogMapping& mapping, uint64_t number, EntryState state) {
  Entry& entry = mapping.entry(number);
  uint64_t expected = number * 4;
  const int64_t now = monotonic_ns();
  if (entry.state.compare_exchange_strong(expected, number * 4 + static_cast<uint64_t>(state),
                                          std::memory_order_acq_rel))
    entry.done_ns.store(now, std::memory_order_release);
}

void CollectiveLog::finish(uint64_t number, EntryState state) { finish_entry(mapping_, number, state); }

void CollectiveLog::watch_long_waits(int64_t limit_ns, std::function<void()> wake) {
  long_waits_ = std::make_unique<LongWaits>(mapping_, limit_ns, std::move(wake));
}

void CollectiveLog::set_context(int64_t cell, int64_t step) {
  mapping_.header().cell = cell;
  mapping_.header().step = step;
}

bool CollectiveLog::add_code_range(int64_t cell, uint64_t begin, uint64_t size) {
  Header& header = mapping_.header();
  const uint32_t index = header.code_range_count;
  if (index == kCodeRangeCapacity) return false;
  mapping_.code_range(index) = {begin, size, cell};
  header.code_range_count.store(index + 1, std::memory_order_release);
  return true;
}

bool CollectiveLog::name_site(uint64_t number, const CallPlace& place) {
  if (number == 0 || number >= kSiteCapacity) return false;
  Site& site = mapping_.site(number);
  const size_t cut = place.file.size() - std::min(place.file.size(), sizeof site.file - 1);
  std::strncpy(site.file, place.file.c_str() + cut, sizeof site.file - 1);
  std::strncpy(site.function, place.function.c_str(), sizeof site.function - 1);
  site.line = place.line;
  return true;
}

/// Returns how many there are. A rank that has damaged its log may claim more than fit.
static uint32_t code_ranges(const Header& header) {
  return std::min(header.code_range_count.load(std::memory_order_acquire), kCodeRangeCapacity);
}

std::optional<CollectiveRecord> CollectiveLogReader::record(uint64_t number) const {
  const Entry& entry = mapping_->entry(number);
  const uint64_t before = entry.sequence.load(std::memory_order_acquire);
  if (before != 2 * number + 2) return std::nullopt;
  CollectiveRecord record;
  record.seq = entry.seq;
  record.op = op_name(static_cast<CollectiveOp>(entry.op));
  record.dtype = dtype_name(entry.dtype);
  record.reduce_op = reduce_op_name(entry.reduce_op);
  record.shape.assign(entry.shape, entry.shape + std::min<size_t>(entry.dimensions, kShapeCapacity));
  record.tensor_count = entry.tensor_count;
  record.root = entry.root;
  record.tag = entry.tag;
  record.tag_seq = entry.tag_seq;
  record.bytes = entry.bytes;
  record.call_site = entry.call_site;
  record.cell = entry.cell;
  record.step = entry.step;
  record.entered_ns = entry.entered_ns;
  record.point_to_point = entry.flags & kPointToPoint;
  record.async = entry.flags & kAsync;
  record.through_c10d = entry.flags & kThroughC10d;
  record.on_device = entry.flags & kOnDevice;
  record.thread = entry.thread;
  record.entry = number;
  record.group.assign(entry.group_name, strnlen(entry.group_name, sizeof entry.group_name));
  record.done_ns = entry.done_ns.load(std::memory_order_acquire);
  const uint64_t state = entry.state.load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.sequence.load(std::memory_order_relaxed) != before || state / 4 != number) return std::nullopt;
  record.state = static_cast<CollectiveState>(state % 4);
  if (const DeviceTimes& times = mapping_->device_times(number);
      record.on_device && times.owner.load(std::memory_order_acquire) == number + 1) {
    record.looked_ns = times.looked_ns.load(std::memory_order_relaxed);
    record.reached_ns = times.reached_ns.load(std::memory_order_relaxed);
    record.started_ns = times.started_ns.load(std::memory_order_acquire);
    if (times.owner.load(std::memory_order_relaxed) != number + 1)  // a later entry took the slot meanwhile
      record.looked_ns = record.reached_ns = record.started_ns = 0;
  }

  if (entry.flags & kNamedSite) {
    if (record.call_site > 0 && record.call_site < kSiteCapacity) {
      const Site& site = mapping_->site(record.call_site);
      record.place = {.file = {site.file, strnlen(site.file, sizeof site.file)},
                      .line = site.line,
                      .function = {site.function, strnlen(site.function, sizeof site.function)}};
    }
    return record;
  }
  const Header& header = mapping_->header();
  for (uint32_t i = code_ranges(header); record.call_site && i-- > 0;) {
    const CodeRange& range = mapping_->code_range(i);
    if (record.call_site - range.begin >= range.size) continue;
    record.site_cell = range.cell;
    record.site_offset = record.call_site - range.begin;
    break;
  }
  return record;
}

std::vector<CollectiveRecord> CollectiveLogReader::last(size_t count) const {
  const uint64_t end = mapping_->header().next_entry.load(std::memory_order_acquire);
  const uint64_t available = std::min<uint64_t>(end, kEntryCapacity);
  std::vector<CollectiveRecord> records;
  for (uint64_t i = end - std::min<uint64_t>(count, available); i < end; ++i)
    if (auto one = record(i)) records.push_back(std::move(*one));
  return records;
}

std::vector<CollectiveRecord> CollectiveLogReader::in_flight() const {
  const uint64_t end = mapping_->header().next_entry.load(std::memory_order_acquire);
  std::vector<CollectiveRecord> records;
  for (uint64_t i = end - std::min<uint64_t>(end, kEntryCapacity); i < end; ++i) {
    if (mapping_->entry(i).state.load(std::memory_order_acquire) != i * 4) continue;
    if (auto one = record(i); one && one->state == CollectiveState::entered) records.push_back(std::move(*one));
  }
  return records;
}

std::map<std::string, int64_t> CollectiveLogReader::progress() const {
  std::map<std::string, int64_t> result;
  const uint32_t count = mapping_->header().group_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < std::min(count, kGroupCapacity); ++i) {
    const Group& group = mapping_->group(i);
    if (group.group_rank < 0 || !group.open()) continue;
    result[group_name(group)] = group.last_entered;
  }
  return result;
}

std::vector<LoggedGroup> CollectiveLogReader::groups() const {
  std::vector<LoggedGroup> result;
  const uint32_t count = mapping_->header().group_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < std::min(count, kGroupCapacity); ++i) {
    const Group& group = mapping_->group(i);
    if (!group.open()) continue;
    LoggedGroup view;
    view.name = group_name(group);
    view.ranks = group.named_ranks();
    view.unnamed = std::max(group.size, 0) - group.named();
    view.member = group.group_rank >= 0;
    view.incarnation = group.incarnation;
    view.entered = group.last_entered;
    view.received_from_any = group.received_from_any;
    const int64_t sleep = group.shared_wait;
    view.shares_memory = sleep >= kNoSharedWait;
    if (const auto peer = static_cast<int32_t>(sleep % kMostSharingRanks); peer >= 0 && peer < group.named()) {
      view.sleeps_for = group.rank_at(peer);
      view.sleeps_in = sleep / kMostSharingRanks;
    }
    for (int32_t k = 0; k < std::min(group.named(), kRanksPerGroup); ++k) {
      if (const int64_t sent = group.sent[k]) view.sent[group.rank_at(k)] = sent;
      if (const int64_t received = group.received[k]) view.received[group.rank_at(k)] = received;
    }
    result.push_back(std::move(view));
  }
  return result;
}

bool LoggedGroup::counts_messages_with(int rank) const {
  const auto counted = std::span(ranks).first(std::min<size_t>(ranks.size(), kRanksPerGroup));
  return std::ranges::find(counted, rank) != counted.end();
}

uint64_t CollectiveLogReader::code_address(int64_t cell, uint64_t offset) const {
  const Header& header = mapping_->header();
  for (uint32_t i = code_ranges(header); i-- > 0;) {
    const CodeRange& range = mapping_->code_range(i);
    if (range.cell == cell) return offset < range.size ? range.begin + offset : 0;
  }
  return 0;
}

}  // namespace lockstep::dist
