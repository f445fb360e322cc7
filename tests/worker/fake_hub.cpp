#include "tests/worker/fake_hub.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 300s;  // ends what hangs; judges nothing

Fd cloexec_pipe(Fd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
  write_end = Fd(ends[1]);
  return Fd(ends[0]);
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}
int Fd::release() { return std::exchange(fd_, -1); }
void Fd::reset() {
  if (fd_ >= 0) ::close(release());
}

Process::Process(const std::vector<std::string>& arguments, const Environment& environment, std::vector<int> inherit,
                 int output) {
  std::vector<std::string> words = {LOCKSTEP_WORKER_PROGRAM}, variables;
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (char** entry = environ; *entry; ++entry)
    if (!std::string_view(*entry).starts_with("LOCKSTEP_")) variables.emplace_back(*entry);
  for (const auto& [name, value] : environment)
    if (value != "-") variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(std::strerror(errno));
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int fd : inherit) ::fcntl(fd, F_SETFD, 0);
    if (output >= 0) {
      ::dup2(output, 1);
      ::dup2(output, 2);
    }
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);
}

Process::~Process() {
  if (ended_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  wait();
}

Ended Process::wait() {
  if (ended_) return *ended_;
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, std::chrono::milliseconds(kPatience).count()) <= 0) {
    ADD_FAILURE() << "process " << pid_ << " does not end";
    ::kill(-pid_, SIGKILL);
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  // What the session's shell does, too: nothing of the group is left behind.
  ::kill(-pid_, SIGKILL);
  ended_ = Ended{WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : 0};
  return *ended_;
}

bool Process::running() {
  siginfo_t info = {};
  return !ended_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

std::string read_line(int fd) {
  std::string line;
  pollfd readable{fd, POLLIN, 0};
  for (char c; ::poll(&readable, 1, std::chrono::milliseconds(kPatience).count()) > 0 && ::read(fd, &c, 1) == 1;) {
    if (c == '\n') return line;
    line += c;
  }
  return line;
}

bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

StoreProcess::StoreProcess(const std::string& session_directory) {
  Fd child_output, lifeline_read = cloexec_pipe(lifeline_);
  output_ = cloexec_pipe(child_output);
  process_.emplace(std::vector<std::string>{"--store"},
                   Environment{{"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_read.get())},
                               {"LOCKSTEP_SESSION_DIR", session_directory}},
                   std::vector<int>{lifeline_read.get()}, child_output.get());
  child_output.reset();
  const auto line = read_line(output_.get());
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) throw std::runtime_error("the store said: " + line);
  address_ = "127.0.0.1:" + std::to_string(json.at("port").get<int>());
}

void StoreProcess::tell(const std::string& line) {
  const std::string text = line + "\n";
  ASSERT_EQ(::write(lifeline_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

FakeHub::FakeHub(int world_size) : world_size_(world_size) {
  std::string name = std::filesystem::temp_directory_path() / "lockstep-worker-test-XXXXXX";
  if (!::mkdtemp(name.data())) throw std::runtime_error(std::strerror(errno));
  directory_ = name;
  lifeline_read_ = cloexec_pipe(lifeline_);
  router_.set(zmq::sockopt::linger, 0);
  router_.set(zmq::sockopt::sndhwm, 0);
  router_.set(zmq::sockopt::rcvhwm, 0);
  router_.bind("ipc://" + directory_ + "/hub");
  store_.emplace(directory_);
}

FakeHub::~FakeHub() {
  processes_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void FakeHub::start(int rank, const Environment& changes) {
  Environment environment = {{"LOCKSTEP_RANK", std::to_string(rank)},
                             {"LOCKSTEP_WORLD_SIZE", std::to_string(world_size_)},
                             {"LOCKSTEP_LOCAL_RANK", std::to_string(rank)},
                             {"LOCKSTEP_LOCAL_WORLD_SIZE", std::to_string(world_size_)},
                             {"LOCKSTEP_NODE_RANK", "0"},
                             {"LOCKSTEP_SESSION_DIR", directory_},
                             {"LOCKSTEP_HUB", "ipc://" + directory_ + "/hub"},
                             {"LOCKSTEP_IDENTITY", "rank-" + std::to_string(rank)},
                             {"LOCKSTEP_STORE", store_->address()},
                             {"LOCKSTEP_STORE_KEY", "0123456789abcdef"},
                             {"LOCKSTEP_BACKEND", "gloo"},
                             {"LOCKSTEP_DEVICE", "cpu"},
                             {"LOCKSTEP_THREADS", "1"},
                             {"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_read_.get())},
                             {"LOCKSTEP_ARGUMENTS", R"({"epochs":"3"})"}};
  for (const auto& [name, value] : changes) environment[name] = value;
  processes_[rank] =
      std::make_unique<Process>(std::vector<std::string>{}, environment, std::vector<int>{lifeline_read_.get()});
}

void FakeHub::start_ready(const Environment& changes) {
  for (int rank = 0; rank < world_size_; ++rank) start(rank, changes);
  for (int rank = 0; rank < world_size_; ++rank) expect<protocol::Hello>(rank);
  for (int rank = 0; rank < world_size_; ++rank) send(protocol::Prelude{}, rank);
  for (int rank = 0; rank < world_size_; ++rank) expect<protocol::Ready>(rank);
}

void FakeHub::send(const protocol::HubMessage& message, int rank, const std::string& frame) {
  router_.send(zmq::buffer("rank-" + std::to_string(rank)), zmq::send_flags::sndmore);
  const auto header = encode(message).dump();
  router_.send(zmq::buffer(header), frame.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore);
  if (!frame.empty()) router_.send(zmq::buffer(frame), zmq::send_flags::none);
}

bool FakeHub::receive_one(std::chrono::milliseconds limit) {
  zmq::pollitem_t item{router_.handle(), 0, ZMQ_POLLIN, 0};
  if (zmq::poll(&item, 1, limit) == 0) return false;
  std::vector<std::string> parts;
  zmq::message_t part;
  do {
    (void)router_.recv(part);
    parts.push_back(part.to_string());
  } while (part.more());
  const int rank = std::stoi(parts.at(0).substr(5));
  const auto header = nlohmann::json::parse(parts.at(1));
  auto message = protocol::decode_worker_message(header);
  if (rank == 0) seen.push_back({header["kind"], parts.size() > 2 ? parts[2] : header.value("text", "")});
  if (const auto* output = std::get_if<protocol::Output>(&message)) {
    output_[{rank, output->cell, output->stream}] += parts.at(2);
    const auto bytes = static_cast<int64_t>(parts[2].size());
    total_bytes_ += bytes;
    if (grant_credit_)
      send(protocol::Credit{bytes}, rank);
    else
      ungranted_ += bytes;
    return true;
  }
  inbox_[rank].push_back(std::move(message));
  return true;
}

void FakeHub::receive(const char* waiting_for) {
  if (receive_one(kPatience)) return;
  std::string text = std::string("no message came; waiting for ") + waiting_for;
  for (const auto& [rank, messages] : inbox_)
    for (const auto& message : messages) text += "\n  rank " + std::to_string(rank) + ": " + encode(message).dump();
  throw std::runtime_error(text);
}

void FakeHub::drain() {
  while (receive_one(0ms)) {
  }
}

std::string FakeHub::library(const std::string& file) {
  std::ifstream stream(std::string(LOCKSTEP_WORKER_CELLS) + "/" + file + ".so", std::ios::binary);
  if (!stream) throw std::runtime_error("no fixture " + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

int64_t FakeHub::load(const std::string& file, const std::string& cell, std::vector<int> lines) {
  protocol::Load load;
  load.cell = next_cell_++;
  load.name = "cell_" + std::to_string(load.cell) + ".so";
  load.entry = "cell_" + cell;
  load.ranks = RankSet::all(world_size_);
  for (const int line : lines) load.steps.push_back({line, {}});
  for (int rank = 0; rank < world_size_; ++rank) send(load, rank, library(file));
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto loaded = expect<protocol::Loaded>(rank);
    EXPECT_TRUE(loaded.ok) << loaded.message;
    EXPECT_EQ(loaded.cell, load.cell);
  }
  return load.cell;
}

void FakeHub::run(int64_t cell) {
  for (int rank = 0; rank < world_size_; ++rank) send(protocol::Run{cell}, rank);
}

protocol::Done FakeHub::run_cell(const std::string& file, const std::string& cell) {
  run(load(file, cell));
  const auto done = expect<protocol::Done>(0);
  for (int rank = 1; rank < world_size_; ++rank) expect<protocol::Done>(rank);
  return done;
}

std::string FakeHub::output(int64_t cell, Stream stream, int rank) {
  drain();
  return output_[{rank, cell, stream}];
}

nlohmann::json FakeHub::ask(const protocol::Question& question, int rank) {
  const int64_t id = next_query_++;
  send(protocol::Query{id, question}, rank);
  for (;;) {
    auto reply = expect<protocol::Reply>(rank);
    if (reply.id == id) return reply.body;
  }
}

}  // namespace lockstep::testing
