#include "collectives/transport/transport_text.h"

#include <c10/util/Exception.h>

#include <regex>

namespace lockstep::dist {

std::string transport_text(const std::exception_ptr& error) {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {  // a plug-in may throw anything
    text = "an unknown error";
  }
  static const std::regex source(R"(\[[^\]\s]*\.(cc|cpp|h|hpp):\d+\] ?)");
  return std::regex_replace(text, source, "");
}

}  // namespace lockstep::dist
