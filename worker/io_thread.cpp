#include "worker/io_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "collectives/session_group.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/signal_name.h"
#include "worker/cell/cell_error.h"
#include "worker/interpose/crash.h"
#include "worker/io_replies.h"
#include "worker/process/endable_call.h"
#include "worker/process/interrupt.h"
#include "worker/process/run_state.h"
#include "worker/process/stack.h"
#include "worker/recording.h"

namespace lockstep::worker {
namespace {

using namespace std::chrono_literals;

constexpr size_t kChunk = 64 * 1024;     // of output in one message
constexpr auto kGather = 1ms;            // after a small read, how long the next may gather
constexpr auto kStackPatience = 80ms;    // a thread that does not let itself be asked (all signals blocked)
constexpr auto kEndAgain = 20ms;         // until a call that has not noticed is ended again
constexpr auto kShutdownPatience = 2s;   // for a cell that does not stop
constexpr auto kExitPatience = 5s;       // for destructors and atexit handlers of cells
constexpr int kLingerMs = 1500;          // for a hub that does not read

/// The signal, or the call of exit, that ended the rank, as data.
protocol::CellError describe_death(const DeathReport& report, Symbols& symbols) {
  protocol::CellError error;
  error.type = report.signal ? protocol::signal_name(report.signal) : report.how;
  error.message = describe(report);
  set_place(error, symbols.resolve(report.stack), symbols);
  return error;
}

}  // namespace

IoThread::IoThread(const Configuration& configuration, Outbox& outbox, OutputPipes& pipes, RunQueue& queue,
                   int event_fd)
    : configuration_(configuration), outbox_(outbox), pipes_(pipes), queue_(queue), event_fd_(event_fd) {
  socket_.emplace(context_, zmq::socket_type::dealer);
  socket_->set(zmq::sockopt::routing_id, configuration.identity);
  socket_->set(zmq::sockopt::linger, kLingerMs);
  // Credit for output and the protocol bound the queue, so that it needs no limit itself.
  socket_->set(zmq::sockopt::sndhwm, 0);
  socket_->set(zmq::sockopt::rcvhwm, 0);
  socket_->connect(configuration.hub);
  if (configuration.lifeline_fd >= 0) ::fcntl(configuration.lifeline_fd, F_SETFD, FD_CLOEXEC);
  // Signals are for the run thread and for threads of cells.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fatal);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "lockstep-io");
    run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  thread_.detach();
}

void IoThread::look_at_waits() {
  waits_entered_ = true;
  set_event(event_fd_);
}

void IoThread::finish() {
  finish_requested_ = true;
  set_event(event_fd_);
  finished_.get_future().wait_for(std::chrono::milliseconds(kLingerMs) + 1s);
}

long IoThread::poll_timeout() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&next](Clock::time_point t) {
    if (!next || t < *next) next = t;
  };
  const auto now = Clock::now();
  if (read_after_ > now) consider(read_after_);
  if (stack_deadline_) consider(*stack_deadline_);
  if (end_deadline_) consider(*end_deadline_);
  if (waits_due_) consider(*waits_due_);
  if (end_call_at_) consider(*end_call_at_);
  if (!next) return -1;
  return std::max<long>(0, std::chrono::ceil<std::chrono::milliseconds>(*next - now).count());
}

void IoThread::run() {
  while (socket_) {
    const bool may_read = credit_ > 0 && (Clock::now() >= read_after_ || outbox_.waiting_for_bytes());
    std::array<zmq::pollitem_t, 5> items = {{{socket_->handle(), 0, ZMQ_POLLIN, 0},
                                             {nullptr, event_fd_, ZMQ_POLLIN, 0},
                                             {nullptr, configuration_.lifeline_fd, ZMQ_POLLIN, 0},
                                             {nullptr, pipes_.fd(Stream::standard_output), ZMQ_POLLIN, 0},
                                             {nullptr, pipes_.fd(Stream::standard_error), ZMQ_POLLIN, 0}}};
    // Items that are not to be looked at now are moved out of the array.
    size_t count = 2;
    if (configuration_.lifeline_fd >= 0) ++count;
    if (may_read) {
      items[count] = items[3];
      items[count + 1] = items[4];
      count += 2;
    }
    try {
      zmq::poll(items.data(), count, std::chrono::milliseconds(poll_timeout()));
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
      continue;
    }
    if (configuration_.lifeline_fd >= 0 && items[2].revents != 0) end_group();
    if (items[1].revents != 0) take_event(event_fd_);
    if (items[0].revents != 0) receive();
    pump(false);
    answer_stack_queries();
    if (end_call_at_ && Clock::now() >= *end_call_at_) end_calls();
    if (waits_entered_.exchange(false) || (waits_due_ && Clock::now() >= *waits_due_)) report_long_waits();
    if (take_death_report()) report_death();
    if (finish_requested_ && socket_) {
      pump(true);
      close_connection();
      finished_.set_value();
    }
    if (end_deadline_ && Clock::now() >= *end_deadline_) end_group();
  }
}

void IoThread::receive() {
  zmq::message_t part;
  while (socket_ && socket_->recv(part, zmq::recv_flags::dontwait)) {
    const std::string header = part.to_string();
    std::string frame;
    while (part.more()) {
      (void)socket_->recv(part);
      if (frame.empty()) frame = part.to_string();
    }
    try {
      handle(protocol::decode_hub_message(nlohmann::json::parse(header)), std::move(frame));
    } catch (const std::exception& error) {
      // Most likely the hub is of another version: it gets an answer, and decides.
      send(protocol::NotReady{std::string("a message of the session could not be read: ") + error.what()});
    }
  }
}

void IoThread::handle(protocol::HubMessage message, std::string frame) {
  std::visit(
      [this, &frame](auto& m) {
        using M = std::remove_cvref_t<decltype(m)>;
        if constexpr (std::is_same_v<M, protocol::Prelude>) credit_ += m.output_window - protocol::kOutputWindow;
        if constexpr (std::is_same_v<M, protocol::Interrupt>) {
          interrupt(m.cell, "the cell was interrupted");
        } else if constexpr (std::is_same_v<M, protocol::Abort>) {
          stop_requests().request(stop_requests().armed(), StopReason::abort);
          dist::abort(m.reason);
        } else if constexpr (std::is_same_v<M, protocol::Mismatch>) {
          dist::tell_of_mismatch(m.incarnation, {m.message, m.finding});
        } else if constexpr (std::is_same_v<M, protocol::Query>) {
          handle_query(m);
        } else if constexpr (std::is_same_v<M, protocol::Credit>) {
          credit_ += m.bytes;
          pipes_.confirm(m.bytes);
        } else if constexpr (std::is_same_v<M, protocol::PeersDone>) {
          dist::peers_left(m.cell, m.ranks, m.collectives);
        } else if constexpr (std::is_same_v<M, protocol::Shutdown>) {
          shut_down();
        } else {
          // It is armed here and not when it starts: an interrupt that follows on its heels must find it.
          if constexpr (std::is_same_v<M, protocol::Run> || std::is_same_v<M, protocol::Builtin>)
            stop_requests().arm(m.cell);
          queue_.push({std::move(m), std::move(frame), dist::abort_count()});
        }
      },
      message);
}

void IoThread::interrupt(int64_t cell, const char* reason) {
  // The groups are shut down even where no collective is in flight: one may begin at this very moment.
  if (!stop_requests().request(cell, StopReason::interrupt)) return;
  dist::abort(reason);
  end_calls();
}

void IoThread::end_calls() {
  end_call_at_.reset();
  if (stop_requests().pending() != StopReason::interrupt) return;
  end_call();
  end_call_at_ = Clock::now() + kEndAgain;
}

void IoThread::shut_down() {
  interrupt(stop_requests().armed(), "the session ends");
  queue_.push({protocol::Shutdown{}, {}});
  end_deadline_ = Clock::now() + kShutdownPatience;
}

void IoThread::handle_query(const protocol::Query& query) {
  namespace question = protocol::question;
  const auto is = [&]<typename T>(const T&) { return std::holds_alternative<T>(query.question); };
  if (const auto* unreadable = std::get_if<protocol::Unreadable>(&query.question)) {
    reply(query, protocol::NoAnswer{{unreadable->problem}});
  } else if (is(question::Status())) {
    reply(query, status_answer(device_.load(), configuration_, symbols_));
  } else if (is(question::Replay())) {
    reply(query, replay_answer());
  } else if (const auto* collectives = std::get_if<question::Collectives>(&query.question)) {
    reply(query, collectives_answer(static_cast<size_t>(std::max<int64_t>(0, collectives->last)), symbols_));
  } else if (is(question::Stack()) || is(question::Hang())) {
    stack_queries_.push_back(query);
    if (run_state().phase() == RankState::idle) {
      answer_stack_queries(std::vector<Frame>{});
      return;
    }
    held_ = run_thread_held();  // before the signal wakes it
    stack_deadline_ = Clock::now() + kStackPatience;
    StackProbe::request(event_fd_);
  } else {
    reply(query, protocol::NoAnswer{{"a worker can't answer what is asked of ranks of Python jobs"}});
  }
}

void IoThread::reply(const protocol::Query& query, const protocol::Answer& answer) {
  send(protocol::Reply{query.id, encode_answer(answer)});
}

void IoThread::answer_stack_queries() {
  if (stack_queries_.empty()) return;
  Stack stack;
  if (StackProbe::taken(stack))
    answer_stack_queries(symbols_.resolve(stack));
  else if (Clock::now() >= *stack_deadline_)
    answer_stack_queries(std::nullopt);
}

/// `frames` are nothing where the thread has not answered.
void IoThread::answer_stack_queries(const std::optional<std::vector<Frame>>& frames) {
  for (const protocol::Query& query : stack_queries_) {
    if (const auto* hang = std::get_if<protocol::question::Hang>(&query.question))
      reply(query, hang_answer(*hang, configuration_.rank, held_, frames, symbols_));
    else if (frames)
      reply(query, stack_answer(*frames));
    else
      reply(query, protocol::NoAnswer{
                       {"the thread that runs cells does not answer: it blocks signals, or waits in the kernel"}});
  }
  stack_queries_.clear();
  stack_deadline_.reset();
}

void IoThread::report_long_waits() {
  const auto look = dist::long_waits();
  for (const auto& record : look.waits)
    if (record.cell > 0)
      send(protocol::LongWait{record.cell, static_cast<int64_t>(record.entry), dist::to_finding_op(record)});
  waits_due_.reset();  // steady_clock is CLOCK_MONOTONIC
  if (look.next_ns) waits_due_ = Clock::time_point(std::chrono::nanoseconds(*look.next_ns));
}

void IoThread::send(const protocol::WorkerMessage& message, std::string frame) {
  const std::string header = encode(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const bool more = !frame.empty();
  socket_->send(zmq::buffer(header), more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  if (more) socket_->send(zmq::buffer(frame), zmq::send_flags::none);
}

bool IoThread::send_output(Stream stream, bool regardless_of_credit) {
  const size_t limit = regardless_of_credit ? kChunk : static_cast<size_t>(std::clamp<int64_t>(credit_, 0, kChunk));
  if (limit == 0) return false;
  std::string bytes;
  const size_t n = outbox_.read(stream, limit, bytes);
  if (n == 0) return false;
  credit_ -= static_cast<int64_t>(n);
  if (n < kChunk / 2) read_after_ = Clock::now() + kGather;
  send(protocol::Output{output_cell_, stream}, std::move(bytes));
  return true;
}

void IoThread::pump(bool regardless_of_credit) {
  // So many rounds at most come before control messages are looked at again.
  constexpr int kRounds = 8;
  for (int round = 0; regardless_of_credit || round < kRounds; ++round) {
    while (auto outgoing = outbox_.next()) send_outgoing(std::move(*outgoing));
    const bool now = regardless_of_credit || outbox_.waiting_for_bytes() || Clock::now() >= read_after_;
    if (!now) return;
    const bool out = send_output(Stream::standard_output, regardless_of_credit);
    const bool err = send_output(Stream::standard_error, regardless_of_credit);
    if (!out && !err) return;
  }
}

void IoThread::send_outgoing(Outgoing outgoing) {
  if (auto* message = std::get_if<protocol::WorkerMessage>(&outgoing))
    send(*message);
  else if (const auto* begins = std::get_if<CellBegins>(&outgoing))
    output_cell_ = begins->cell;
  else if (const auto* waits = std::get_if<WaitsInVain>(&outgoing))
    send(waiting_message(*waits, symbols_));
}

void IoThread::report_death() {
  const DeathReport report = *take_death_report();
  pump(true);
  protocol::Dying dying;
  dying.cell = run_state().cell();
  dying.error = describe_death(report, symbols_);
  send(dying);
  exit_code_ = report.code;
  // exit() goes on to run destructors, whose output still comes; all other ends are at once.
  if (report.signal == 0 && (std::string_view(report.how) == "exit" || std::string_view(report.how) == "pthread_exit"))
    end_deadline_ = Clock::now() + kExitPatience;
  else
    close_connection();
  death_reported();
}

void IoThread::close_connection() {
  socket_->close();
  socket_.reset();
  context_.close();  // waits until everything is handed to the system, kLingerMs at most
}

void IoThread::end_group() {
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  ::syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

}  // namespace lockstep::worker
