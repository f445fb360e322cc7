#include "worker/cell/cell_error.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <exception>
#include <string>
#include <utility>

#include "protocol/dist_error.h"
#include "worker/cell/cell.h"
#include "worker/interpose/throw_trace.h"
#include "worker/process/demangle.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {

std::string text_of(const std::exception& error) {
  // LibTorch appends a stack of its own to what().
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const char* text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text ? text : "";  // a what() of the user's may return nullptr
}

/// Returns the exception that was being handled when std::throw_with_nested threw `error`. There is none outside of a
/// handler, where std::rethrow_if_nested would end the process.
std::exception_ptr nested_in(const std::exception& error) {
  const auto* nested = dynamic_cast<const std::nested_exception*>(&error);
  return nested ? nested->nested_ptr() : nullptr;
}

/// Returns "outer: inner" for std::throw_with_nested.
std::string full_text(const std::exception& error) {
  constexpr int kMostNested = 50;
  std::string text = text_of(error);
  std::exception_ptr inner = nested_in(error);
  for (int depth = 0; inner; ++depth) {
    if (depth == kMostNested) return text + ": ...";
    try {
      std::rethrow_exception(std::exchange(inner, nullptr));
    } catch (const std::exception& next) {
      text += ": " + text_of(next);
      inner = nested_in(next);
    } catch (...) {  // a nested exception of a type without a text adds none
    }
  }
  return text;
}

/// Returns the text of an exception that is no std::exception.
std::string plain_text() {
  try {
    throw;
  } catch (const char* text) {
    return text ? text : "";
  } catch (const std::string& text) {
    return text;
  } catch (int number) {
    return std::to_string(number);
  } catch (long number) {
    return std::to_string(number);
  } catch (double number) {
    return std::to_string(number);
  } catch (...) {  // of a type that only the cell knows; its name has to do
    return {};
  }
}

std::vector<Frame> where_thrown(const std::exception_ptr& exception, Symbols& symbols) {
  Stack stack;
  std::vector<Frame> frames;
  if (thrown_at(exception, stack)) frames = symbols.resolve(stack);
  if (innermost_cell_frame(frames) || !rethrown_at(exception, stack)) return frames;
  auto again = symbols.resolve(stack);
  return innermost_cell_frame(again) ? again : frames;
}

/// Whether the compiler of cells has put the function in: to show the value of a last expression, or find a kept one.
bool shows_values(const std::string& function) {
  for (const char* ours : {"lockstep::show_value<", "lockstep::show_here<", "lockstep::detail::write",
                           "lockstep::ValueWriter::", "__lockstep_kept_value<", "lockstep::detail::kept_value("})
    if (function.find(ours) != std::string::npos) return true;
  return false;
}

}  // namespace

void set_place(protocol::CellError& error, std::vector<Frame> frames, Symbols& symbols) {
  if (!innermost_cell_frame(frames)) {
    // The stack says nothing of the cell (a library's thread threw, the stack is damaged): the step that runs has to
    // do.
    const uintptr_t step = run_state().code();
    if (step != 0 && run_state().phase() == RankState::running) {
      for (auto& frame : symbols.resolve({&step, 1})) {
        if (frame.cell > 0 && run_state().line() > 0) frame.line = run_state().line();
        frames.push_back(std::move(frame));
      }
    }
  }
  for (const auto& frame : frames)
    if (!shows_values(frame.function)) error.stack.push_back(frame.str());
  if (const Frame* frame = innermost_cell_frame(frames)) {
    error.where = where(frame->cell, frame->line);
    error.where_cell = frame->cell;
    error.where_line = frame->line;
  }
}

const char* how_to_record_gradients() {
  if (c10::InferenceMode::is_enabled()) return "c10::InferenceMode off(false);";
  return at::GradMode::is_enabled() ? "" : "torch::GradMode::set_enabled(true);";
}

CaughtError describe_current_exception(Symbols& symbols) {
  CaughtError caught;
  auto& error = caught.error;
  // The type comes first: looking at the exception below throws and catches others.
  const auto exception = std::current_exception();
  if (const std::type_info* type = abi::__cxa_current_exception_type()) error.type = demangle(*type);
  const auto frames = where_thrown(exception, symbols);
  try {
    std::rethrow_exception(exception);
  } catch (const Interrupted& e) {
    caught.interrupted = true;
    error.message = e.what();
  } catch (const dist::Aborted& e) {
    caught.aborted = true;
    error.message = e.what();
    error.root_cause = false;
  } catch (const dist::PeerLeft& e) {
    error.message = e.what();
    error.root_cause = false;
  } catch (const dist::CollectiveMismatch& e) {
    error.message = e.what();
    caught.finding = e.finding;
  } catch (const std::exception& e) {
    error.message = full_text(e);
  } catch (...) {  // anything can be thrown
    error.message = plain_text();
  }
  set_place(error, frames, symbols);
  return caught;
}

}  // namespace lockstep::worker
