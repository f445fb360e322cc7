#include "shell/look/copies.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMostCopies = 16;
constexpr std::chrono::milliseconds kEndsWithin{200};  // a copy that was killed, where the kernel lets it go

/// A copy of this process, with the processes that it has not answered for yet.
class Copy {
 public:
  Copy(std::deque<int64_t> pids, const std::function<std::string(int64_t)>& ask) : pids_(std::move(pids)) {
    Pipe pipe = make_pipe();
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw StartError(std::string("no process could be started: ") + std::strerror(errno));
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      for (const int64_t each : pids_) {
        const std::string answer = ask(each);
        const uint64_t size = answer.size();
        if (!write_all(pipe.write.get(), {reinterpret_cast<const char*>(&size), sizeof size}) ||
            !write_all(pipe.write.get(), answer))
          break;
      }
      ::_exit(0);
    }
    process_ = open_process(pid_);
    answers_ = std::move(pipe.read);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() {
    ::kill(pid_, SIGKILL);
    if (is_ready(process_.get(), POLLIN, kEndsWithin)) uninterrupted([&] { return ::waitpid(pid_, nullptr, 0); });
  }

  int answers() const { return answers_.get(); }
  const std::deque<int64_t>& left() const { return pids_; }

  /// Reads what is there and adds whole answers to `into`. Returns false where no more will come.
  bool read(std::map<int64_t, std::string>& into) {
    const Reading found = read_some(answers_.get(), text_);
    for (uint64_t size = 0; text_.size() >= sizeof size && !pids_.empty();) {
      std::memcpy(&size, text_.data(), sizeof size);
      if (text_.size() - sizeof size < size) break;
      into[pids_.front()] = text_.substr(sizeof size, size);
      text_.erase(0, sizeof size + size);
      pids_.pop_front();
    }
    return found == Reading::bytes || found == Reading::empty;
  }

 private:
  std::deque<int64_t> pids_;
  pid_t pid_ = -1;
  Descriptor process_, answers_;
  std::string text_;
};

/// Asks in one copy after the other: each goes on behind the process that has kept the one before.
class Row {
 public:
  Row(std::deque<int64_t> pids, std::chrono::milliseconds limit, const std::function<std::string(int64_t)>& ask)
      : limit_(limit), ask_(ask) {
    begin(std::move(pids));
  }
  bool is_done() const { return !copy_; }
  Clock::time_point deadline() const { return deadline_; }
  int answers() const { return copy_->answers(); }

  void read(std::map<int64_t, std::string>& into) {
    const size_t before = copy_->left().size();
    if (!copy_->read(into)) return next();
    if (copy_->left().size() != before) deadline_ = Clock::now() + limit_;
  }
  /// Leaves the process that has not been answered for, or that has ended the copy.
  void next() {
    std::deque<int64_t> left = copy_->left();
    copy_.reset();
    if (!left.empty()) left.pop_front();
    begin(std::move(left));
  }

 private:
  void begin(std::deque<int64_t> pids) {
    if (pids.empty()) return;
    copy_.emplace(std::move(pids), ask_);
    deadline_ = Clock::now() + limit_;
  }

  const std::chrono::milliseconds limit_;
  const std::function<std::string(int64_t)>& ask_;
  std::optional<Copy> copy_;
  Clock::time_point deadline_;
};

}  // namespace

std::map<int64_t, std::string> ask_in_copies(const std::vector<int64_t>& pids, std::chrono::milliseconds limit,
                                             const std::function<std::string(int64_t pid)>& ask) {
  const size_t count = std::min<size_t>(std::clamp(std::thread::hardware_concurrency(), 1U, kMostCopies), pids.size());
  std::vector<std::deque<int64_t>> shares(count);
  for (size_t i = 0; i < pids.size(); ++i) shares[i % count].push_back(pids[i]);
  std::deque<Row> rows;
  for (std::deque<int64_t>& share : shares) rows.emplace_back(std::move(share), limit, ask);
  std::map<int64_t, std::string> answers;
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Row*> asked;
    Clock::time_point deadline = Clock::time_point::max();
    for (Row& row : rows) {
      if (row.is_done()) continue;
      polled.push_back({.fd = row.answers(), .events = POLLIN, .revents = 0});
      asked.push_back(&row);
      deadline = std::min(deadline, row.deadline());
    }
    if (asked.empty()) return answers;
    poll_until(polled, deadline);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (polled[i].revents != 0)
        asked[i]->read(answers);
      else if (Clock::now() >= asked[i]->deadline())
        asked[i]->next();
    }
  }
}

}  // namespace lockstep::shell
