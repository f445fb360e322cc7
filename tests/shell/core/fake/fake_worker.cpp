// lockstep-worker for tests of the shell: one rank that runs the commands of fake_cell.h; with --store a process that
// waits for its lifeline's end; with --ranks one that both are copies of. FAKE_WORKER: of rank 1, at the start: die,
// stop (it is stopped), refuse (says not ready), old (is of another version); of the process that ranks are copies of:
// no copies, killed. With FAKE_GPUS rank R says that it has the GPU cuda:R, at the address 0000:3R:00.0.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "fake_cell.h"
#include "protocol/worker_messages.h"
#include "worker/rank_copies.h"

using namespace lockstep;
using namespace lockstep::protocol;

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : -1;
}

class FakeWorker {
 public:
  FakeWorker()
      : rank_(number("LOCKSTEP_RANK")),
        lifeline_(number("LOCKSTEP_LIFELINE_FD")),
        socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::routing_id, std::getenv("LOCKSTEP_IDENTITY"));
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.connect(std::getenv("LOCKSTEP_HUB"));
  }

  int run() {
    const char* chosen = std::getenv("FAKE_WORKER");
    const std::string how = rank_ == 1 && chosen ? chosen : "";
    if (how == "die") {
      (void)!::write(STDERR_FILENO, "libtorch_cpu.so: no such file\n", 30);
      return 127;
    }
    if (how == "stop") ::raise(SIGSTOP);
    Hello hello;
    hello.rank = rank_;
    hello.pid = ::getpid();
    hello.host = "here";
    hello.device = std::getenv("FAKE_GPUS") ? "cuda:" + std::to_string(rank_) : "cpu";
    hello.versions.libtorch = how == "old" ? "2.15.0" : "2.11.0";
    send(hello);
    refuses_ = how == "refuse";
    while (!ended_) serve(-1);
    return 0;
  }

 private:
  void send(const WorkerMessage& message, const std::string& frame = {}) {
    socket_.send(zmq::buffer(encode(message).dump()), frame.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
    if (!frame.empty()) socket_.send(zmq::buffer(frame), zmq::send_flags::none);
  }

  void serve(int wait_ms) {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, lifeline_, ZMQ_POLLIN, 0}};
    zmq::poll(items, 2, std::chrono::milliseconds(wait_ms));
    if (items[1].revents != 0) ::kill(0, SIGKILL);
    zmq::message_t part;
    while (!ended_ && socket_.recv(part, zmq::recv_flags::dontwait)) {
      const auto header = nlohmann::json::parse(part.to_string());
      std::string frame;
      while (part.more()) {
        (void)socket_.recv(part);
        frame = part.to_string();
      }
      handle(decode_hub_message(header), frame);
    }
  }

  void handle(const HubMessage& message, const std::string& frame) {
    if (std::holds_alternative<Prelude>(message)) {
      if (refuses_)
        send(NotReady{"no process group: the store did not answer"});
      else
        send(Ready{1});
    } else if (const auto* m = std::get_if<Load>(&message)) {
      objects_[m->cell] = frame;
      Loaded loaded{.cell = m->cell, .ok = true, .message = {}, .warning = {}};
      for (const auto& command : fake::commands_of(frame, rank_)) {
        if (command.name == "die_loading") ::raise(SIGKILL);
        if (command.name == "loading") output(Stream::standard_output, command.text + "\n");
        if (command.name == "refuse") loaded.ok = false, loaded.message = command.text;
      }
      send(loaded);
    } else if (const auto* m = std::get_if<Drop>(&message)) {
      objects_.erase(m->cell);
    } else if (const auto* m = std::get_if<Run>(&message)) {
      again_ = m->again;
      run_cell(m->cell);
    } else if (const auto* m = std::get_if<Builtin>(&message)) {
      ++entered_;
      send(Done{.cell = m->cell,
                .status = CellStatus::ok,
                .steps_done = 1,
                .error = {},
                .run_ms = 0.5,
                .collectives = {{"default", entered_}}});
    } else if (const auto* m = std::get_if<Interrupt>(&message)) {
      if (m->cell == cell_) stop_ = CellStatus::interrupted;
    } else if (const auto* aborted = std::get_if<Abort>(&message)) {
      if (cell_ != 0) stop_ = CellStatus::aborted;
      if (regroup_) send(Regrouped{std::exchange(regroup_, {}).value(), false, "aborted: " + aborted->reason});
    } else if (const auto* m = std::get_if<PeersDone>(&message)) {
      if (joining_ && m->cell == cell_) {
        const auto count = m->collectives.find("default");
        if ((count == m->collectives.end() ? 0 : count->second) < entered_) missing_ = missing_ | m->ranks;
        if (!missing_.empty())
          send(Waiting{
              cell_,
              FindingOp{.name = "all_reduce", .seq = entered_, .shape = {2}, .dtype = "float32", .group = "default"},
              missing_, "cell " + std::to_string(cell_) + ", line 1"});
      }
    } else if (const auto* m = std::get_if<Regroup>(&message)) {
      entered_ = 0;
      if (dies_regrouping_) ::raise(SIGKILL);
      if (std::exchange(slow_regroup_, false))
        regroup_ = m->generation;
      else
        send(Regrouped{m->generation, true, {}});
    } else if (const auto* m = std::get_if<Query>(&message)) {
      question::Status::Answer status;
      status.state = cell_ ? RankState::running : RankState::idle;
      if (std::getenv("FAKE_GPUS")) status.device_bus_id = "0000:3" + std::to_string(rank_) + ":00.0";
      send(Reply{m->id, answer_.is_null() ? encode_answer(status) : answer_});
    } else if (const auto* m = std::get_if<Credit>(&message)) {
      credit_ += m->bytes;
    } else if (std::holds_alternative<Shutdown>(message)) {
      ended_ = true;
    }
  }

  void output(Stream stream, const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size() && !ended_ && !stop_) {
      if (credit_ <= 0) {
        serve(-1);
        continue;
      }
      const auto n = std::min<size_t>({bytes.size() - sent, static_cast<size_t>(credit_), 64 << 10});
      credit_ -= static_cast<int64_t>(n);
      send(Output{cell_, stream}, bytes.substr(sent, n));
      sent += n;
    }
  }

  void run_cell(int64_t cell) {
    cell_ = cell;
    stop_.reset();
    Done done{.cell = cell, .status = CellStatus::ok};
    done.run_ms = 1;
    for (const auto& command : fake::commands_of(objects_[cell], rank_)) {
      if (!run_command(command, done)) break;
      ++done.steps_done;
    }
    cell_ = 0;
    joining_ = false;
    missing_ = {};
    done.collectives = {{"default", entered_}};
    if (!ended_) send(done);
  }

  bool fail(Done& done, const fake::Command& command, bool root_cause) {
    done.status = CellStatus::error;
    done.error = CellError{.type = "std::runtime_error",
                           .message = command.text,
                           .where = "cell " + std::to_string(cell_) + ", line " + std::to_string(command.line),
                           .where_cell = cell_,
                           .where_line = command.line,
                           .root_cause = root_cause,
                           .stack = {}};
    return false;
  }

  void loop(const std::string& text, bool is_over) {
    std::istringstream words(text);
    Progress progress{.cell = cell_, .line = 1, .elapsed_s = 12};
    int64_t total = 0;
    words >> progress.done >> total >> progress.label;
    progress.loop = progress.label;
    progress.total = total;
    if (is_over) progress.state = progress.done == total ? LoopState::completed : LoopState::stopped;
    send(progress);
  }

  bool run_command(const fake::Command& command, Done& done) {
    const auto& [line, name, text] = command;
    if (name == "print")
      output(Stream::standard_output, text + "\n");
    else if (name == "print_err")
      output(Stream::standard_error, text + "\n");
    else if (name == "storm") {
      std::string bytes;
      for (int64_t i = 0; static_cast<int64_t>(bytes.size()) < std::atoll(text.c_str()); ++i) {
        std::string row = std::to_string(i);
        row.resize(63, '.');
        bytes += row + "\n";
      }
      output(Stream::standard_output, bytes);
      if (stop_) {
        done.status = stop_.value_or(CellStatus::ok);
        return false;
      }
    } else if (name == "raw") {
      std::string bytes;
      for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
      output(Stream::standard_output, bytes);
    } else if (name == "value")
      send(Value{cell_, text, nullptr});
    else if (name == "lines") {
      std::string shown;
      for (int k = 1; k <= std::stoi(text); ++k) shown += "line " + std::to_string(k) + "\n";
      send(Value{cell_, shown, nullptr});
    } else if (name == "number")
      send(Value{.cell = cell_, .text = text, .data = std::stod(text), .as_range = true});
    else if (name == "turns" || name == "turned")
      loop(text, name == "turned");
    else if (name == "throw")
      return fail(done, command, true);
    else if (name == "consequence")
      return fail(done, command, false);
    else if (name == "out_of_memory") {
      fail(done, command, true);
      done.error->type = "c10::OutOfMemoryError";
      return false;
    } else if (name.starts_with("__lockstep::out_of_memory("))  // what the session asks after it
      send(Value{cell_, "holders on rank " + std::to_string(rank_) + " " + name, nullptr});
    else if (name == "loop") {
      while (!stop_ && !ended_) serve(-1);
      done.status = stop_.value_or(CellStatus::ok);
      done.regroup = true;
      return false;
    } else if (name == "stubborn" || (name == "stubborn_again" && again_)) {
      while (!ended_) serve(-1);
      return false;
    } else if (name == "collective")
      ++entered_;
    else if (name == "join") {
      ++entered_;
      joining_ = true;
      while (!stop_ && !ended_) serve(-1);
      fail(done, command, false);
      done.status = stop_.value_or(CellStatus::ok);
      done.regroup = true;
      return false;
    } else if (name == "new_group") {
      send(LongWait{cell_, ++entered_,
                    FindingOp{.name = "new_group", .seq = entered_, .shape = {}, .dtype = "", .group = "default"}});
      output(Stream::standard_output, "waits\n");
      while (stop_ != CellStatus::interrupted && !ended_)
        serve(-1);  // an abort does not reach a connection to the store
      done.status = stop_.value_or(CellStatus::ok);
      return false;
    } else if (name == "slow_regroup") {
      slow_regroup_ = true;
    } else if (name == "die_regrouping") {
      dies_regrouping_ = true;
    } else if (name == "fault") {
      Finding finding{
          .severity = Severity::fault, .inspector = "verify", .verdict = Verdict::mismatch, .ranks = {rank_}};
      finding.cell = cell_;
      finding.message = text;
      send(FindingMessage{finding});
    } else if (name == "answer") {
      answer_ = nlohmann::json::parse(text);
    } else if (name == "send") {
      socket_.send(zmq::buffer(text), zmq::send_flags::none);
      while (!ended_) serve(-1);
      return false;
    } else if (name == "exit") {
      socket_.close();
      context_.close();
      ::_exit(std::atoi(text.c_str()));
    } else if (name == "kill") {
      socket_.close();
      context_.close();
      ::signal(std::atoi(text.c_str()), SIG_DFL);  // a sanitizer would have a word
      ::raise(std::atoi(text.c_str()));
    } else if (name == "child") {
      const pid_t child = ::fork();
      if (child == 0) {
        for (;;) ::pause();
      }
      output(Stream::standard_output, "child " + std::to_string(child) + "\n");
    } else if (name == "heir") {
      const pid_t heir = ::fork();
      if (heir != 0) {
        ::setpgid(heir, heir);  // both sides set it, so that it holds whoever comes first
      } else {
        ::setpgid(0, 0);
        char byte;
        while (::read(lifeline_, &byte, 1) > 0) {
        }
        ::_exit(0);
      }
    }
    return true;
  }

  int rank_, lifeline_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::map<int64_t, std::string> objects_;
  int64_t cell_ = 0, entered_ = 0, credit_ = kOutputWindow;
  std::optional<CellStatus> stop_;
  bool joining_ = false, ended_ = false, refuses_ = false, slow_regroup_ = false, dies_regrouping_ = false,
       again_ = false;
  nlohmann::json answer_;  // null: the status
  std::optional<int64_t> regroup_;  // one that waits: its generation
  RankSet missing_;
};

int run_store() {
  char byte;
  while (::read(number("LOCKSTEP_LIFELINE_FD"), &byte, 1) > 0) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--store") == 0) return run_store();
  if (argc > 1 && std::strcmp(argv[1], "--ranks") == 0) {
    const char* chosen = std::getenv("FAKE_WORKER");
    const std::string how = chosen ? chosen : "";
    if (how == "killed") ::raise(SIGKILL);
    const worker::Copy copy = how == "no copies" ? worker::Copy::none : worker::copy_for_orders(argv);
    if (copy != worker::Copy::rank) return copy == worker::Copy::store ? run_store() : 0;
  }
  return FakeWorker().run();
}
