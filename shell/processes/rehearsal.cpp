#include "shell/processes/rehearsal.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <zmq.hpp>

#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/installation.h"
#include "protocol/json_fields.h"
#include "protocol/worker_messages.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

LOCKSTEP_JSON(EarlyEnd, number, cell, ranks, steps_done)

namespace {

constexpr const char* kRehearsalWord = "rehearsal-rank";
constexpr const char* kEarlyEnd = "LOCKSTEP_REHEARSAL";
// A run takes so long that no magic repeats it to measure it better.
constexpr double kRunTime_ms = 1000;

class RehearsalRank {
 public:
  RehearsalRank() : rank_(std::stoi(protocol::variable("LOCKSTEP_RANK"))), socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::routing_id, protocol::variable("LOCKSTEP_IDENTITY"));
    socket_.connect(protocol::variable("LOCKSTEP_HUB"));
    early_end_ = nlohmann::json::parse(protocol::variable(kEarlyEnd)).get<std::optional<EarlyEnd>>();
  }

  void run(int lifeline) {
    protocol::Hello hello;
    hello.rank = rank_;
    hello.pid = ::getpid();
    hello.device = "cpu";
    hello.versions.libtorch = protocol::libtorch_version();
    send(hello);
    while (!ended_) {
      zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, lifeline, ZMQ_POLLIN, 0}};
      zmq::poll(items, 2, std::chrono::milliseconds(-1));
      if (items[1].revents != 0) return;  // the shell is gone
      receive();
    }
  }

 private:
  void receive() {
    zmq::message_t part;
    while (!ended_ && socket_.recv(part, zmq::recv_flags::dontwait)) {
      const auto header = nlohmann::json::parse(part.to_string_view());
      while (part.more()) (void)socket_.recv(part);
      std::visit([&](const auto& message) { handle(message); }, protocol::decode_hub_message(header));
    }
  }
  void send(const protocol::WorkerMessage& message) {
    socket_.send(zmq::buffer(protocol::encode(message).dump()), zmq::send_flags::none);
  }

  void handle(const protocol::Prelude&) { send(protocol::Ready{1}); }
  void handle(const protocol::Load& load) {
    steps_[load.cell] = static_cast<int64_t>(load.steps.size());
    send(protocol::Loaded{.cell = load.cell, .ok = true, .message = {}, .warning = {}});
  }
  void handle(const protocol::Run& run) {
    protocol::Done done{.cell = run.cell, .status = CellStatus::ok};
    done.run_ms = kRunTime_ms;
    done.steps_done = steps_[run.object != 0 ? run.object : run.cell];
    if (early_end_ && early_end_->number == run.number && early_end_->cell == run.cell &&
        early_end_->ranks.contains(rank_)) {
      done.status = CellStatus::error;
      done.steps_done = early_end_->steps_done;
      done.error =
          protocol::CellError{.type = "rehearsal", .message = "fails in this rehearsal", .where = {}, .stack = {}};
    }
    send(done);
  }
  void handle(const protocol::Builtin& builtin) {
    protocol::Done done{.cell = builtin.cell, .status = CellStatus::ok};
    done.steps_done = 1;
    send(done);
  }
  void handle(const protocol::Regroup& regroup) {
    send(protocol::Regrouped{.generation = regroup.generation, .ok = true, .message = {}});
  }
  void handle(const protocol::Query& query) {
    send(protocol::Reply{query.id, encode_answer(protocol::NoAnswer{{"no cell runs while a file is built"}})});
  }
  void handle(const protocol::Shutdown&) { ended_ = true; }
  /// Drop, Interrupt, Abort, Credit, PeersDone, Configure: nothing runs that they could reach.
  template <typename Message>
  void handle(const Message&) {}

  int rank_;
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::optional<EarlyEnd> early_end_;
  std::map<int64_t, int64_t> steps_;  // of the objects, by the cell that they were loaded for
  bool ended_ = false;
};

}  // namespace

Launch rehearsal_launch(const Rehearsal& rehearsal) {
  Launch launch;
  launch.program = std::filesystem::read_symlink("/proc/self/exe").string();
  launch.arguments = {kRehearsalWord};
  launch.environment = {{kEarlyEnd, nlohmann::json(rehearsal.early_end).dump()}};
  return launch;
}

bool is_rehearsal_process(int argc, char** argv) {
  return argc > 1 && std::string_view(argv[1]) == kRehearsalWord && std::getenv(kEarlyEnd);
}

int run_rehearsal_process(int argc, char** argv) {
  const int lifeline = std::stoi(protocol::variable("LOCKSTEP_LIFELINE_FD"));
  if (argc > 2 && std::string_view(argv[2]) == "--store") {  // nobody asks it for anything
    char byte;
    while (::read(lifeline, &byte, 1) > 0) {
    }
    return 0;
  }
  RehearsalRank().run(lifeline);
  return 0;
}

}  // namespace lockstep::shell
