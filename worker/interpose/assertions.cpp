// Puts __assert_fail of assert() in cells in front of the C library's. The error of a cell's assertion names cell and
// line, not the file and function that the compiler makes of the cell.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/installation.h"
#include "protocol/next_function.h"
#include "worker/interpose/crash.h"
#include "worker/process/configuration.h"

namespace {

bool is_file_of_a_cell(std::string_view file) {
  constexpr std::string_view kCell = "/cells/cell_";
  for (const std::string_view session : {std::string_view(lockstep::worker::configuration().session_dir),
                                         std::string_view(lockstep::protocol::kBuiltSession)})
    if (file.starts_with(session) && file.substr(session.size()).starts_with(kCell)) return true;
  return false;
}

/// Whether it is "void cell_7()", the code of a cell outside of functions.
bool is_cell_itself(std::string_view function) {
  constexpr std::string_view kBegin = "void cell_";
  if (!function.starts_with(kBegin)) return false;
  function.remove_prefix(kBegin.size());
  while (!function.empty() && std::isdigit(static_cast<unsigned char>(function.front()))) function.remove_prefix(1);
  return function == "()";
}

}  // namespace

// The attribute as <assert.h> writes it: [[noreturn]] would have to stand at that declaration, which comes first where
// NDEBUG is not defined.
extern "C" __attribute__((__noreturn__)) void __assert_fail(const char* assertion, const char* file, unsigned line,
                                                            const char* function) noexcept {
  if (file && is_file_of_a_cell(file)) {
    std::string text = std::string("the assertion `") + (assertion ? assertion : "") + "` failed";
    if (function && !is_cell_itself(function)) text += std::string(", in ") + function;
    lockstep::worker::set_abort_message(text.c_str());
    std::abort();
  }
  if (auto* const real = lockstep::next_function<"__assert_fail", decltype(__assert_fail)>())
    real(assertion, file, line, function);
  std::abort();
}
