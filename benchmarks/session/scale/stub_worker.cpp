// A rank without LibTorch, for sessions of a thousand ranks on one machine: it speaks the workers' protocol and has a
// collective log. What it "runs" is the first line of a cell's object, or, where a compiler has made the object, what a
// string constant says behind "stub: ":
//
//   value          shows a value that is equal on all ranks, as `k + 1` does
//   output N       N bytes of output in lines, equal on all ranks
//   call           makes a collective, which is alike on all ranks and ends at once
//   hang           the last rank is done; the others sit in a barrier with it until they are freed
//   nothing        is done
//
// With --store it is the process of the store, which waits for the end of its lifeline.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "collectives/log/collective_log.h"
#include "protocol/worker_messages.h"

namespace lockstep::benchmark {
namespace {

using namespace protocol;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : -1;
}

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

class StubWorker {
 public:
  StubWorker()
      : rank_(number("LOCKSTEP_RANK")),
        size_(number("LOCKSTEP_WORLD_SIZE")),
        lifeline_(number("LOCKSTEP_LIFELINE_FD")),
        log_(text("LOCKSTEP_SESSION_DIR") + "/rank-" + std::to_string(rank_) + "/log", rank_, size_),
        socket_(context_, zmq::socket_type::dealer) {
    std::vector<int> all(static_cast<size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    group_ = log_.add_group("default", all, rank_, 0);
    log_.mapping().header().compares = 1;
    socket_.set(zmq::sockopt::routing_id, text("LOCKSTEP_IDENTITY"));
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.connect(text("LOCKSTEP_HUB"));
  }

  int run() {
    // A machine for each relay, which has started its ranks: calls of ranks of one machine are not compared by the shell.
    const std::string machine = "stub-" + std::to_string(::getppid());
    Hello hello{.rank = rank_,
                .pid = ::getpid(),
                .host = "stub",
                .machine = machine,
                .device = "cpu",
                .versions = {.libtorch = text("STUB_LIBTORCH"), .compiler = {}},
                .where = {}};
    send(hello);
    while (!has_ended_) serve();
    return 0;
  }

 private:
  void send(const WorkerMessage& message, const std::string& frame = {}) {
    socket_.send(zmq::buffer(encode(message).dump()), frame.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    if (!frame.empty()) socket_.send(zmq::buffer(frame), zmq::send_flags::none);
  }

  void serve() {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, lifeline_, ZMQ_POLLIN, 0}};
    zmq::poll(items, 2, std::chrono::milliseconds(-1));
    if (items[1].revents != 0) has_ended_ = true;
    zmq::message_t part;
    while (!has_ended_ && socket_.recv(part, zmq::recv_flags::dontwait)) {
      const auto header = nlohmann::json::parse(part.to_string());
      std::string frame;
      while (part.more()) {
        (void)socket_.recv(part);
        frame = part.to_string();
      }
      std::visit([&](const auto& message) { take(message, frame); }, decode_hub_message(header));
    }
  }

  template <typename Other>
  void take(const Other&, const std::string&) {}
  void take(const Prelude& prelude, const std::string&) {
    credit_ = prelude.output_window;
    send(Ready{1});
  }
  void take(const Load& load, const std::string& frame) {
    std::istringstream in(frame);
    std::ifstream file(load.file, std::ios::binary);
    std::istream& object = load.file.empty() ? static_cast<std::istream&>(in) : file;
    std::getline(object, object_);
    if (object_.starts_with("\x7f"
                            "ELF")) {
      object_.append(std::istreambuf_iterator<char>(object), {});
      constexpr std::string_view kMark = "stub: ";
      const size_t mark = object_.find(kMark);
      object_ = mark == std::string::npos ? "nothing" : object_.c_str() + mark + kMark.size();
    }
    send(Loaded{.cell = load.cell, .ok = true, .message = {}, .warning = {}});
  }
  void take(const Run& run, const std::string&) {
    cell_ = run.cell;
    std::istringstream words(object_);
    std::string what;
    size_t bytes = 0;
    words >> what >> bytes;
    if (what == "value") send(Value{.cell = cell_, .text = "43", .data = 43, .label = {}});
    if (what == "output") write(bytes);
    meets_ = what == "call";
    if (meets_) log_.finish(begin_call(), dist::log_layout::EntryState::done);
    if (what == "hang" && rank_ + 1 < size_)
      enter();
    else if (unwritten_ == 0)
      leave(CellStatus::ok);
  }
  void take(const Credit& credit, const std::string&) {
    credit_ += credit.bytes;
    if (unwritten_ > 0) write(0);
    if (unwritten_ == 0 && writes_) leave(CellStatus::ok);
  }
  void take(const PeersDone& peers, const std::string&) {
    if (!waits_ || peers.cell != cell_) return;
    const auto count = peers.collectives.find("default");
    if (count != peers.collectives.end() && count->second >= entered_) return;
    missing_ = missing_ | peers.ranks;
    send(Waiting{.cell = cell_, .op = op(), .missing = missing_, .where = "cell 1, line 1"});
  }
  void take(const Abort&, const std::string&) {
    if (!waits_) return;
    log_.finish(*waits_, dist::log_layout::EntryState::failed);
    waits_.reset();
    leave(CellStatus::aborted);
  }
  void take(const Regroup& regroup, const std::string&) {
    entered_ = 0;
    log_.mapping().group(group_).last_entered = 0;
    send(Regrouped{regroup.generation, true, {}});
  }
  void take(const Query& query, const std::string&) {
    nlohmann::json stack = nlohmann::json::array(), frames = nlohmann::json::array();
    if (cell_) {
      stack.push_back("cell " + std::to_string(cell_) + ", line 1");
      frames.push_back({{"function", ""}, {"cell", cell_}, {"line", 1}, {"object", ""}});
    }
    send(Reply{query.id,
               {{"state", cell_ ? "running" : "idle"},
                {"cell", cell_},
                {"since_s", 0.5},
                {"rss_bytes", 250'000'000 + rank_},
                {"device", "cpu"},
                {"threads", 7},
                {"stack", stack},
                {"frames", frames},
                {"waits", nlohmann::json::object()}}});
  }
  void take(const Shutdown&, const std::string&) { has_ended_ = true; }

  FindingOp op() const { return {.name = "barrier", .seq = entered_, .shape = {}, .dtype = {}, .group = "default"}; }

  /// Returns the entry of a collective that is entered.
  uint64_t begin_call() {
    ++entered_;
    log_.set_context(cell_, 1);
    const uint64_t entry = log_.begin(group_, entered_, {.op = dist::CollectiveOp::barrier, .signature = 1});
    log_.mapping().group(group_).last_entered = entered_;
    return entry;
  }

  void enter() {
    missing_ = {};
    waits_ = begin_call();
    send(LongWait{.cell = cell_, .entry = static_cast<int64_t>(*waits_), .op = op()});
  }

  /// As much as there is credit for.
  void write(size_t bytes) {
    writes_ = true;
    unwritten_ += bytes;
    while (unwritten_ > 0 && credit_ > 0) {
      std::string lines;
      while (lines.size() + 64 <= std::min({unwritten_, static_cast<size_t>(credit_), size_t{64} << 10}))
        lines += std::string(63, '.') + "\n";
      if (lines.empty()) lines = std::string(std::min(unwritten_, static_cast<size_t>(credit_)), '.');
      unwritten_ -= lines.size();
      credit_ -= static_cast<int64_t>(lines.size());
      send(Output{cell_, Stream::standard_output}, lines);
    }
  }

  void leave(CellStatus status) {
    writes_ = false;
    send(Done{.cell = std::exchange(cell_, 0),
              .status = status,
              .steps_done = 1,
              .error = {},
              .run_ms = 0.01 * (rank_ + 1),
              .collectives = {{"default", entered_}},
              .regroup = status != CellStatus::ok,
              .meetings = meets_ ? std::vector<int64_t>{1} : std::vector<int64_t>()});
  }

  const int rank_, size_, lifeline_;
  dist::CollectiveLog log_;
  uint32_t group_ = 0;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::string object_;
  int64_t cell_ = 0, entered_ = 0, credit_ = 0;
  std::optional<uint64_t> waits_;  // entry
  RankSet missing_;
  size_t unwritten_ = 0;
  bool writes_ = false, meets_ = false, has_ended_ = false;
};

}  // namespace
}  // namespace lockstep::benchmark

int main(int count, char** arguments) {
  using namespace lockstep::benchmark;
  if (count < 2 || std::string_view(arguments[1]) != "--store") return StubWorker().run();
  char byte = 0;
  while (::read(number("LOCKSTEP_LIFELINE_FD"), &byte, 1) > 0) {
  }
  return 0;
}
