#include "tests/compiler/cell_session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "protocol/error.h"

namespace lockstep::compiler_test {

namespace fs = std::filesystem;
using namespace protocol;

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket pair");
  std::vector<std::string> words = {path};
  for (const auto& word : arguments) words.push_back(word == "FD" ? std::to_string(ends[1]) : word);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::fcntl(ends[1], F_SETFD, 0);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(path.c_str(), pointers.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  fd_ = ends[0];
}

Program::~Program() {
  close();
  if (pid_ > 0) wait();
}

void Program::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

int Program::wait() {
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

PipeMessage Program::receive() {
  auto message = receive_message(fd_);
  if (!message) throw ChannelError("the program is gone");
  return std::move(*message);
}

std::string CellOutcome::text() const {
  if (!ok()) return std::string(to_string(compiled.status)) + " " + compiled.rendered + problem;
  std::map<int, std::string> all;
  for (const auto& [rank, printed] : output) {
    all[rank] = printed;
    const auto thrown = error.find(rank);
    if (thrown != error.end() && !thrown->second.empty()) all[rank] += "! " + thrown->second + "\n";
  }
  bool same = true;
  for (const auto& [rank, said] : all) same &= said == all.begin()->second;
  if (same) return all.empty() ? "" : all.begin()->second;
  std::string marked;
  for (const auto& [rank, said] : all) marked += "[" + std::to_string(rank) + "] " + said;
  return marked;
}

CellSession::CellSession(SessionSettings settings) : settings_(std::move(settings)) {
  std::string name = (fs::temp_directory_path() / "lockstep-cells-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  directory_ = name;
  fs::create_directories(directory_ + "/cells");
  std::vector<std::string> arguments = {
      "--channel-fd", "FD", "--session-dir", directory_, "--memory-limit", std::to_string(settings_.memory_limit_mb)};
  for (const auto& folder : settings_.include_dirs) arguments.insert(arguments.end(), {"-I", folder});
  compiler_ = std::make_unique<Program>(LOCKSTEP_COMPILER_PROGRAM, arguments, settings_.environment);
  if (settings_.hosts)
    for (int rank = 0; rank < settings_.ranks; ++rank)
      hosts_.push_back(std::make_unique<Program>(
          LOCKSTEP_CELL_HOST_PROGRAM, std::vector<std::string>{"FD"},
          std::map<std::string, std::string>{{"LOCKSTEP_RANK", std::to_string(rank)},
                                             {"LOCKSTEP_WORLD_SIZE", std::to_string(settings_.ranks)}}));
  for (;;) {
    auto [response, frames] = receive();
    if (std::holds_alternative<CompilerProgress>(response)) continue;
    if (auto* failed = std::get_if<CompilerFailed>(&response)) {
      failure_ = failed->message;
      return;
    }
    ready_ = std::get<CompilerReady>(response);
    break;
  }
  for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank) {
    const auto reply = tell_host(rank, {{"do", "load"}, {"path", ready_.prelude}});
    if (!reply.at("problem").is_null()) throw std::runtime_error(reply.at("problem").get<std::string>());
  }
}

CellSession::~CellSession() {
  hosts_.clear();
  compiler_.reset();
  std::error_code error;
  fs::remove_all(directory_, error);
}

std::vector<pid_t> CellSession::states() const {
  const std::string process = std::to_string(compiler_->pid());
  std::ifstream file("/proc/" + process + "/task/" + process + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

nlohmann::json CellSession::tell_host(int rank, const nlohmann::json& request) {
  auto& host = *hosts_.at(static_cast<size_t>(rank));
  host.send(request);
  return host.receive().header;
}

void CellSession::send(const CompilerRequest& request) { compiler_->send(encode(request)); }

std::pair<CompilerResponse, std::vector<std::string>> CellSession::receive() {
  auto message = compiler_->receive();
  return {decode_response(message.header), std::move(message.frames)};
}

CompilerResponse CellSession::ask(const CompilerRequest& request) {
  send(request);
  return receive().first;
}

CellOutcome CellSession::run(const std::string& text, const RankSet& ranks) {
  Compile request;
  request.ranks = ranks;
  return run(text, std::move(request));
}

CellOutcome CellSession::compile(const std::string& text, Compile request) {
  request.cell = ++cell_;
  request.text = text;
  if (request.ranks.empty()) request.ranks = RankSet::all(settings_.ranks);
  send(request);
  CellOutcome outcome;
  auto [response, frames] = receive();
  outcome.compiled = std::get<Compiled>(std::move(response));
  outcome.frames = std::move(frames);
  return outcome;
}

CellOutcome CellSession::run(const std::string& text, Compile request) {
  CellOutcome outcome = compile(text, std::move(request));
  if (outcome.compiled.status != CompileStatus::ok) return outcome;
  std::map<int, nlohmann::json> loaded;
  for (const auto& object : outcome.compiled.objects) {
    const std::string cell_file = directory_ + "/cells/cell_" + std::to_string(outcome.compiled.cell) + ".cpp";
    std::ofstream(cell_file) << object.source;
    for (int rank : object.ranks) {
      if (rank >= static_cast<int>(hosts_.size())) continue;
      const std::string folder = directory_ + "/rank-" + std::to_string(rank);
      fs::create_directories(folder);
      const std::string path = folder + "/" + object.name;
      std::ofstream(path, std::ios::binary) << outcome.frames.at(static_cast<size_t>(object.frame));
      loaded[rank] = tell_host(rank, {{"do", "load"}, {"path", path}, {"entry", object.entry}});
      if (!loaded[rank].at("problem").is_null()) outcome.problem = loaded[rank].at("problem").get<std::string>();
    }
  }
  Settle settle;
  settle.cell = outcome.compiled.cell;
  settle.loaded = outcome.problem.empty();
  if (settle.loaded)
    for (auto& [rank, reply] : loaded) {
      const auto done = tell_host(rank, {{"do", "run"}, {"entry", reply.at("entry")}});
      outcome.output[rank] = done.at("output").get<std::string>();
      outcome.error[rank] = done.at("error").get<std::string>();
      outcome.steps_done[rank] = settle.steps_done[rank] = done.at("done").get<int64_t>();
    }
  if (hosts_.empty())
    for (const auto& object : outcome.compiled.objects)
      for (int rank : object.ranks) settle.steps_done[rank] = static_cast<int64_t>(object.steps.size());
  ask(settle);
  return outcome;
}

}  // namespace lockstep::compiler_test
