#include "shell/jobs/agent_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/descriptor.h"
#include "protocol/descriptor_messages.h"
#include "protocol/read_json.h"
#include "protocol/unix_address.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWayBack{1000};  // that answers of another machine get beyond its own limit
constexpr size_t kLongestAnswer = size_t{512} << 20;  // a recorder's dump with stacks

/// Is one request under way.
class Request {
 public:
  Request(const std::string& socket, const std::string& line) : out_(line) { connect(socket); }

  bool done() const { return done_; }
  pollfd polled() const { return {fd_.get(), static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), 0}; }
  AgentAnswer take() { return std::move(answer_); }

  void go_on(short events) {
    if ((events & POLLOUT) != 0 && !out_.empty()) {
      const ssize_t count = uninterrupted([&] { return ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL); });
      if (count > 0) out_.erase(0, static_cast<size_t>(count));
      if (count < 0 && errno != EAGAIN) return fail("it has ended");
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    const size_t before = in_.size();
    const Reading found = read_some(fd_.get(), in_);
    if (found == Reading::empty) return;
    if (found != Reading::bytes) return fail("it ended before it answered");
    const size_t end = in_.find('\n', before);
    if (end != std::string::npos) in_.resize(end);
    if (in_.size() > kLongestAnswer) return fail("its answer is too long");
    if (end != std::string::npos) end_with(read_agent_answer(in_));
  }

  void fail(const std::string& why) { end_with({.body = nullptr, .error = why}); }

 private:
  void connect(const std::string& socket) {
    const auto address = unix_address(socket);
    if (!address) return fail("the path of its socket is too long: " + socket);
    fd_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd_ || ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
      return fail(std::string("its agent can't be reached: ") + std::strerror(errno));
    if (!is_of_this_user(fd_.get())) return fail("the process at " + socket + " belongs to another user");
  }

  void end_with(AgentAnswer answer) {
    answer_ = std::move(answer);
    done_ = true;
    fd_.reset();
  }

  Descriptor fd_;
  std::string out_, in_;
  AgentAnswer answer_;
  bool done_ = false;
};

void finish(std::vector<Request*> requests, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (true) {
    std::erase_if(requests, [](const Request* each) { return each->done(); });
    if (requests.empty()) return;
    std::vector<pollfd> polled;
    for (const Request* each : requests) polled.push_back(each->polled());
    if (poll_until(polled, end) <= 0) break;
    for (size_t i = 0; i < requests.size(); ++i)
      if (polled[i].revents != 0) requests[i]->go_on(polled[i].revents);
  }
  for (Request* each : requests)
    each->fail("it did not answer within " + std::to_string(limit.count()) + " ms: is its process stopped?");
}

}  // namespace

AgentAnswer read_agent_answer(std::string_view line) {
  json body = protocol::read_json(line);
  if (!body.is_object() || !body.contains("ok")) return {.body = nullptr, .error = "its answer is no JSON object"};
  if (body["ok"] == true) return {.body = std::move(body), .error = ""};
  const json error = body.value("error", json(""));
  const std::string why = error.is_string() ? error.get<std::string>() : error.dump();
  return {.body = nullptr, .error = why.empty() ? "it can't answer" : why};
}

std::map<int, AgentAnswer> ask_ranks(const std::vector<JobMember>& ranks, const json& request,
                                     std::chrono::milliseconds limit) {
  // Text from a log may end within a character.
  const std::string line = request.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::map<int, Request> requests;
  std::vector<Request*> open;
  std::map<std::shared_ptr<RankProxy>, std::vector<JobMember>> elsewhere;
  for (const JobMember& each : ranks) {
    if (!each.is_alive) continue;
    if (each.proxy) {
      elsewhere[each.proxy].push_back(each);
      continue;
    }
    // While a launcher starts a rank again, two processes may have its number.
    const auto [at, is_new] = requests.try_emplace(each.facts.rank, each.socket, line);
    if (is_new) open.push_back(&at->second);
  }
  const auto end = Clock::now() + limit + kWayBack;
  std::vector<std::pair<RankProxy*, int64_t>> sent;
  for (const auto& [proxy, members] : elsewhere) sent.emplace_back(proxy.get(), proxy->send(members, request, limit));
  finish(open, limit);
  std::map<int, AgentAnswer> answers;
  for (auto& [rank, each] : requests) answers.emplace(rank, each.take());
  for (const auto& [proxy, number] : sent) answers.merge(proxy->receive(number, end));
  return answers;
}

json ask_agent(const std::string& socket, const json& request, std::chrono::milliseconds limit) {
  Request asked(socket, request.dump() + "\n");
  finish({&asked}, limit);
  AgentAnswer answer = asked.take();
  if (answer.body.is_null()) throw AgentError(answer.error);
  return std::move(answer.body);
}

}  // namespace lockstep::shell
