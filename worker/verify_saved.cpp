#include "worker/verify_saved.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "inspectors/verify/verify.h"
#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::worker {
namespace {

using nlohmann::json;

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
    const std::string reply =
        reply_to(json::parse(read_to_end(fd))).dump(-1, ' ', false, json::error_handler_t::replace);
    return send_all(fd, reply) ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-worker: %s\n", error.what());
    return 3;
  }
}

}  // namespace lockstep::worker
