// What a call of dist:: with a wrong argument says.
#pragma once
#include <exception>
#include <string>

#include "protocol/dist_error.h"

namespace lockstep::testing {

/// The text of the ArgumentError that `call` throws; "no error", or "another error: …".
template <typename Call>
std::string argument_error(Call&& call) {
  try {
    call();
  } catch (const dist::ArgumentError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace lockstep::testing
