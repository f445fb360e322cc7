#include "worker/verify_saved.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "inspectors/verify/verify_files.h"
#include "protocol/dist_error.h"

namespace lockstep::worker {
namespace {

using nlohmann::json;

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) return text;
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

json reply_to(const json& request) {
  inspect::VerifyOptions options;
  options.publish(false);  // the reply has the findings
  if (!request.at("rtol").is_null() || !request.at("atol").is_null()) {
    options.method(inspect::Method::kAllGather);
    if (!request.at("rtol").is_null()) options.rtol(request.at("rtol"));
    if (!request.at("atol").is_null()) options.atol(request.at("atol"));
  }
  try {
    const auto report = inspect::verify_files(request.at("paths").get<std::vector<std::string>>(), options);
    return {{"findings", report.findings},
            {"tensors", report.tensors},
            {"bytes", report.bytes},
            {"seconds", report.seconds}};
  } catch (const dist::ArgumentError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int verify_saved(int fd) {
  try {
    const std::string reply = reply_to(json::parse(read_all(fd))).dump(-1, ' ', false, json::error_handler_t::replace);
    return write_all(fd, reply) ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-worker: %s\n", error.what());
    return 3;
  }
}

}  // namespace lockstep::worker
