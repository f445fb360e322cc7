#include "python/operators/call.h"

#include <algorithm>
#include <limits>

#include "protocol/dist_error.h"
#include "python/operators/call_sites.h"
#include "python/operators/findings.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

/// JSON has no NaN and no Inf: Python writes {"float": "nan"} for them.
void restore_floats(json& value) {
  if (value.is_object() && value.size() == 1 && value.contains("float")) {
    const auto& text = value["float"].get_ref<const std::string&>();
    constexpr double kInf = std::numeric_limits<double>::infinity();
    value = text == "inf" ? kInf : text == "-inf" ? -kInf : std::numeric_limits<double>::quiet_NaN();
    return;
  }
  if (value.is_structured())
    for (json& each : value) restore_floats(each);
}

json error(const char* type, const std::string& message) { return {{"error", {{"type", type}, {"message", message}}}}; }

json guarded(const std::function<json()>& function) {
  try {
    return function();
  } catch (const PythonRaised&) {
    return error("PythonRaised", "");
  } catch (const dist::ArgumentError& each) {
    return error("ArgumentError", each.what());
  } catch (const dist::PeerLeft& each) {
    return error("PeerLeft", each.what());
  } catch (const dist::Aborted& each) {
    return error("Aborted", each.what());
  } catch (const c10::Error& each) {
    return error("Error", each.what_without_backtrace());
  } catch (const std::exception& each) {
    return error("Error", each.what());
  }
}

}  // namespace

std::chrono::milliseconds duration_of(const json& seconds) {
  constexpr double kMost = 10.0 * 365 * 24 * 3600;
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds.get<double>(), kMost) * 1e3));
}

PythonFunction python_function(const json& address) {
  return reinterpret_cast<PythonFunction>(address.get<uintptr_t>());
}

void call_python(PythonFunction function, int64_t argument) {
  if (function(argument) != 0) throw PythonRaised();
}

std::string run_operator(const std::vector<at::Tensor>& tensors, const std::string& call,
                         const std::function<json(const Call&)>& function) {
  const json result = guarded([&] {
    Call parsed{.tensors = tensors, .arguments = json::parse(call)};
    restore_floats(parsed.arguments);
    const CurrentCall current(parsed.arguments.value("where", std::string()));
    return function(parsed);
  });
  // Names of parameters and values of users need not be UTF-8.
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace lockstep::python
