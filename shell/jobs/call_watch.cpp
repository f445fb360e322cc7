#include "shell/jobs/call_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "protocol/dist_error.h"
#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using Clock = EventLoop::Clock;

constexpr std::chrono::milliseconds kLongestPause{250};

}  // namespace

void CallWatch::add(int64_t pid, const std::string& path) {
  ranks_.try_emplace(pid, Watched{.path = path, .calls = nullptr});
  if (!next_.is_set()) next_.set_after(kEvery, [this] { look(); });
}

void CallWatch::remove(int64_t pid) {
  const auto rank = ranks_.find(pid);
  if (rank == ranks_.end()) return;
  std::vector<dist::NewCall> fresh;
  rank->second.refused = 0;
  read(pid, rank->second, fresh);
  leave_out_known(fresh);
  ranks_.erase(rank);
  if (!fresh.empty()) found_(fresh);
}

void CallWatch::look() {
  std::vector<dist::NewCall> fresh;
  for (auto& [pid, rank] : ranks_) read(pid, rank, fresh);
  if (!ranks_.empty()) next_.set_after(kEvery, [this] { look(); });
  leave_out_known(fresh);
  std::ranges::stable_sort(fresh, {}, &dist::NewCall::incarnation);  // so that a message has few runs
  if (!fresh.empty()) found_(fresh);
}

void CallWatch::leave_out_known(std::vector<dist::NewCall>& calls) const {
  std::map<uint64_t, bool> are_here;  // by incarnation
  std::erase_if(calls, [&](const dist::NewCall& call) {
    const auto [group, is_new] = are_here.try_emplace(call.incarnation, false);
    if (is_new) {
      int size = 0, here = 0;
      for (const auto& [pid, rank] : ranks_) {
        const int of = rank.calls ? dist::size_of(rank.calls->log(), call.incarnation) : 0;
        if (of != 0) size = of, ++here;
      }
      group->second = here != 0 && here == size;
    }
    return group->second;
  });
}

void CallWatch::read(int64_t pid, Watched& rank, std::vector<dist::NewCall>& fresh) {
  struct stat now = {};
  const bool is_other = ::stat(rank.path.c_str(), &now) == 0 && now.st_ino != rank.file;
  if (is_other && (now.st_ino != rank.refused || Clock::now() >= rank.again_at)) {
    try {
      auto log = std::make_unique<dist::NewCalls>(rank.path);
      if (log->log().pid() == pid) {  // else it is of an earlier attempt
        rank.calls = std::move(log);
        rank.calls->log().mapping().header().calls_are_read = 1;
        rank.file = now.st_ino;
      }
    } catch (const dist::Error&) {  // it is being made, or of another version
    }
    if (rank.file != now.st_ino) {  // to map it each time would cost more than to read it
      rank.pause = rank.refused == now.st_ino ? std::min(2 * rank.pause, kLongestPause) : kEvery;
      rank.refused = now.st_ino;
      rank.again_at = Clock::now() + rank.pause;
    }
  }
  if (!rank.calls) return;
  for (const dist::NewCall& each : rank.calls->take())
    if (table_.add(each) != CallTable::Seen::again) fresh.push_back(each);
}

std::pair<CallsMade, std::string> packed(const std::vector<dist::NewCall>& calls) {
  CallsMade message;
  std::string signatures;
  for (const dist::NewCall& each : calls) {
    const bool follows = !message.runs.empty() && message.runs.back().incarnation == each.incarnation &&
                         message.runs.back().first + message.runs.back().count == each.seq;
    if (!follows) message.runs.push_back({.incarnation = each.incarnation, .first = each.seq});
    ++message.runs.back().count;
    signatures.append(reinterpret_cast<const char*>(&each.signature), sizeof each.signature);
  }
  return {std::move(message), std::move(signatures)};
}

std::vector<dist::NewCall> unpacked(const CallsMade& message, const std::string& signatures) {
  std::vector<dist::NewCall> calls;
  size_t at = 0;
  for (const CallsMade::Run& run : message.runs) {
    if (run.count < 0 || run.first < 1 || run.first > INT64_MAX - run.count)
      throw ChannelError("a message with calls has impossible numbers");
    for (int64_t i = 0; i < run.count; ++i) {
      dist::NewCall call{.incarnation = run.incarnation, .seq = run.first + i};
      if (signatures.size() - at < sizeof call.signature) throw ChannelError("a message with calls is too short");
      std::memcpy(&call.signature, signatures.data() + at, sizeof call.signature);
      at += sizeof call.signature;
      calls.push_back(call);
    }
  }
  if (at != signatures.size()) throw ChannelError("a message with calls is too long");
  return calls;
}

}  // namespace lockstep::shell
