// The text of a transport's exception, without the stack trace and the source paths that LibTorch and Gloo put into it.
#pragma once
#include <exception>
#include <string>

namespace lockstep::dist {

std::string transport_text(const std::exception_ptr& error);

}  // namespace lockstep::dist
