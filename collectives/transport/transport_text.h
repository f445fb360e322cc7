// Takes the stack trace and the source paths that LibTorch and Gloo add out of the text of a transport's exception.
#pragma once
#include <exception>
#include <string>

namespace lockstep::dist {

std::string transport_text(const std::exception_ptr& error);

}  // namespace lockstep::dist
