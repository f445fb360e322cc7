#include "collectives/transport/shared_memory/shared_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <random>

#include "protocol/dist_error.h"

namespace lockstep::dist {

/// Counts rounds, times kRound. The lowest bit says that the rank has ended; those between change when a sleeper is to
/// look again. All are in the word that sleepers compare, so that none falls asleep beside such a change.
struct alignas(64) SharedRegion::Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

struct SharedRegion::Layout {
  struct alignas(64) Rank {
    Counter counters[2];  // by stage
    uint64_t signatures[2];  // by half
  };
  uint64_t token[2];  // in the address: a descriptor's number may have become another file's
  Rank ranks[kMostRanks];
};

namespace {
constexpr uint32_t kEnded = 1, kLookAgain = 2, kRound = 256;
static_assert(kLookAgain * SharedRegion::kMostRanks < kRound);  // each rank adds it once at most
static_assert(std::atomic<uint32_t>::is_always_lock_free);

size_t data_at(size_t layout_bytes) {
  constexpr size_t kPage = 4096;
  return (layout_bytes + kPage - 1) / kPage * kPage;
}

void wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

/// Returns when the word is no longer `seen`, or somebody has woken this thread, or at the deadline.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen, SharedRegion::Deadline deadline) {
  const auto until = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  const timespec time{.tv_sec = until / 1'000'000'000, .tv_nsec = until % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &time, nullptr, FUTEX_BITSET_MATCH_ANY);
}

[[noreturn]] void throw_system(const char* what) { throw Error(fmt::format("{}: {}", what, std::strerror(errno))); }
}  // namespace

SharedRegion::SharedRegion(Descriptor fd, int rank, int size)
    : fd_(std::move(fd)), rank_(rank), size_(size), process_(getpid()) {
  const size_t bytes = data_at(sizeof(Layout)) + 2 * kHalfBytes * static_cast<size_t>(size);
  struct stat status;
  if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != bytes)
    throw Error("it is not the memory of this group");
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) throw_system("it can't be mapped");
  layout_ = static_cast<Layout*>(base);
}

SharedRegion::~SharedRegion() {
  if (layout_) munmap(layout_, data_at(sizeof(Layout)) + 2 * kHalfBytes * static_cast<size_t>(size_));
}

std::shared_ptr<SharedRegion> SharedRegion::make(int rank, int size) {
  Descriptor fd(memfd_create("lockstep-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_system("no memory without a name can be made");
  const size_t bytes = data_at(sizeof(Layout)) + 2 * kHalfBytes * static_cast<size_t>(size);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_system("memory can't be shared");
  std::shared_ptr<SharedRegion> region(new SharedRegion(std::move(fd), rank, size));
  std::random_device random;  // all else of it is zero, as the counters begin
  for (uint64_t& word : region->layout_->token) word = uint64_t{random()} << 32 | random();
  return region;
}

std::string SharedRegion::address() const {
  return fmt::format("/proc/{}/fd/{} {:x} {:x}", getpid(), fd_.get(), layout_->token[0], layout_->token[1]);
}

std::shared_ptr<SharedRegion> SharedRegion::open(const std::string& address, int rank, int size) {
  const std::string path = address.substr(0, address.find(' '));
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));  // another file by now may be a pipe
  if (!fd) throw_system("it can't be opened");
  std::shared_ptr<SharedRegion> region(new SharedRegion(std::move(fd), rank, size));
  const auto& token = region->layout_->token;
  if (address != fmt::format("{} {:x} {:x}", path, token[0], token[1]))
    throw Error("it is not the memory of this group");
  region->seal();
  return region;
}

std::byte* SharedRegion::half(int rank, uint32_t round) const {
  return reinterpret_cast<std::byte*>(layout_) + data_at(sizeof(Layout)) +
         kHalfBytes * (2 * static_cast<size_t>(rank) + round % 2);
}

uint64_t& SharedRegion::signature(int rank, uint32_t round) const { return layout_->ranks[rank].signatures[round % 2]; }

SharedRegion::Counter& SharedRegion::counter(Stage stage, int rank) const {
  return layout_->ranks[rank].counters[static_cast<int>(stage)];
}

// Either the sleeper sees the new value, or this sees the sleeper: both orders are sequentially consistent.
void SharedRegion::post(Stage stage, uint32_t round) {
  uint32_t& posted = posted_[static_cast<int>(stage)];
  Counter& own = counter(stage, rank_);
  own.value.fetch_add(kRound * (round - posted));
  posted = round;
  if (own.sleepers.load() != 0) wake_all(own.value);
}

void SharedRegion::wait(Stage stage, int peer, uint32_t round, int64_t seq, Deadline deadline) const {
  Counter& theirs = counter(stage, peer);
  const auto posted = [&](uint32_t seen) { return static_cast<int32_t>((seen & ~(kRound - 1)) - kRound * round) >= 0; };
  if (posted(theirs.value.load(std::memory_order_acquire))) return;
  theirs.sleepers.fetch_add(1);
  const int64_t sleep = log_layout::shared_wait(seq, peer);
  say_wait(log_layout::kNoSharedWait, sleep);
  uint32_t seen = theirs.value.load();
  bool late = false;
  while (!posted(seen) && !(seen & kEnded) && !waits_end_.load() &&
         !(late = std::chrono::steady_clock::now() >= deadline)) {
    sleep_while(theirs.value, seen, deadline);
    seen = theirs.value.load();
  }
  say_wait(sleep, log_layout::kNoSharedWait);
  theirs.sleepers.fetch_sub(1);
  if (posted(seen)) return;
  throw SharedMemoryError(late ? "a rank did not come within the time limit" : "a rank has left");
}

void SharedRegion::tell(std::shared_ptr<log_layout::Group> log) {
  log_ = std::move(log);
  if (log_) log_->shared_wait = log_layout::kNoSharedWait;
}

// What a later connection of the group has said stays.
void SharedRegion::say_wait(int64_t before, int64_t now) const {
  if (log_) log_->shared_wait.compare_exchange_strong(before, now);
}

void SharedRegion::end(int rank) noexcept {
  if (getpid() != process_) return;
  for (const Stage stage : {Stage::written, Stage::done}) {
    counter(stage, rank).value.fetch_or(kEnded);
    wake_all(counter(stage, rank).value);
  }
}

void SharedRegion::end_all() noexcept {
  for (int rank = 0; rank < size_; ++rank) end(rank);
}

// A sleeper that has read a word before this changes it does not fall asleep; one that reads it later sees the flag.
void SharedRegion::end_own_waits() noexcept {
  if (getpid() != process_ || waits_end_.exchange(true)) return;
  for (int rank = 0; rank < size_; ++rank)
    for (const Stage stage : {Stage::written, Stage::done}) {
      counter(stage, rank).value.fetch_add(kLookAgain);
      wake_all(counter(stage, rank).value);
    }
}

bool SharedRegion::any_ended() const noexcept {
  for (int rank = 0; rank < size_; ++rank)
    if (counter(Stage::written, rank).value.load() & kEnded) return true;
  return false;
}

}  // namespace lockstep::dist
