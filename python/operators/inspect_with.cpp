#include "python/operators/inspect_with.h"

#include "protocol/dist_error.h"

namespace lockstep::python {

using nlohmann::json;

inspect::VerifyOptions verify_options(const json& arguments) {
  auto options = common_options<inspect::VerifyOptions>(arguments);
  const std::string method = arguments.at("method");
  if (method == "broadcast")
    options.method(inspect::Method::kBroadcast);
  else if (method == "all_gather")
    options.method(inspect::Method::kAllGather);
  else if (method != "fingerprint")
    throw dist::ArgumentError("verify: there is no method '" + method +
                              "'; there are 'fingerprint', 'broadcast' and 'all_gather'");
  options.rtol(arguments.at("rtol")).atol(arguments.at("atol"));
  return options;
}

}  // namespace lockstep::python
