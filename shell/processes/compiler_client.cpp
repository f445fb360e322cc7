#include "shell/processes/compiler_client.h"

#include <sys/socket.h>

#include <cerrno>
#include <tuple>

#include "protocol/pipe_channel.h"

namespace lockstep::shell {

CompilerClient::CompilerClient(const CompilerOptions& options) {
  Descriptor theirs;
  std::tie(channel_, theirs) = make_socket_pair();
  Launch launch;
  launch.program = find_program("lockstep-compiler");
  launch.arguments = {"--channel-fd", std::to_string(theirs.get()), "--session-dir", options.session_directory};
  launch.arguments.insert(launch.arguments.end(), {"--memory-limit", std::to_string(options.memory_limit_mb)});
  for (const auto& folder : options.include_dirs) launch.arguments.insert(launch.arguments.end(), {"-I", folder});
  if (!options.torch.empty())
    launch.arguments.insert(launch.arguments.end(), {"--python-job", options.torch, options.headers});
  launch.inherit = {theirs.get()};
  launch.output = output_.write_end();
  launch.outlives_slurm_signals = true;
  process_ = std::make_unique<Child>(launch);
  output_.close_write_end();
}

void CompilerClient::send(const protocol::CompilerRequest& request) {
  unsent_ += protocol::wire_bytes({protocol::encode(request), {}});
  flush();
}

void CompilerClient::flush() {
  size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t n = uninterrupted([&] {
      return ::send(channel_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    if (n < 0 && errno != EAGAIN) sent = unsent_.size();  // it is gone: take() will notice
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  unsent_.erase(0, sent);
}

bool CompilerClient::take() {
  char bytes[1 << 16];
  for (;;) {
    const ssize_t n = uninterrupted([&] { return ::recv(channel_.get(), bytes, sizeof bytes, MSG_DONTWAIT); });
    if (n <= 0) return n < 0 && errno == EAGAIN;
    arriving_.append({bytes, static_cast<size_t>(n)});
  }
}

std::optional<FromCompiler> CompilerClient::next() {
  auto message = arriving_.next();
  if (!message) return std::nullopt;
  return FromCompiler{protocol::decode_response(message->header), std::move(message->frames)};
}

std::string CompilerClient::last_words() {
  // Its channel closes a moment before the process is gone.
  constexpr std::chrono::milliseconds kMoment{200};
  const auto end = process_->ended_within(kMoment);
  std::string words = end ? end->str() : "closed its channel";
  process_->finish();
  const std::string tail = output_.last_lines(5);
  if (!tail.empty()) words += "; it wrote:\n" + tail;
  return words;
}

}  // namespace lockstep::shell
