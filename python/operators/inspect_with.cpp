#include "python/operators/inspect_with.h"

#include "protocol/dist_error.h"

namespace lockstep::python {

using nlohmann::json;

void read_option(const json& value, inspect::Method& method) {
  const std::string name = value;
  if (name == "broadcast")
    method = inspect::Method::kBroadcast;
  else if (name == "all_gather")
    method = inspect::Method::kAllGather;
  else if (name != "fingerprint")
    throw dist::ArgumentError("verify: there is no method '" + name +
                              "'; there are 'fingerprint', 'broadcast' and 'all_gather'");
}

inspect::VerifyOptions verify_options(const Call& call) {
  auto options = common_options<inspect::VerifyOptions>(call.arguments);
#define LOCKSTEP_OPTION LOCKSTEP_READ_OPTION
#include "inspectors/options/verify.def"
  return options;
}

}  // namespace lockstep::python
