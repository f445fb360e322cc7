// Defines what worker/cell/cell.h declares, but for show() and who this rank is, which the process knows.
#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "worker/cell/cell.h"
#include "worker/cell/throw_guard.h"
#include "worker/process/configuration.h"
#include "worker/process/endable_call.h"
#include "worker/process/host.h"
#include "worker/process/interrupt.h"

using lockstep::worker::configuration;

lockstep::GetResult get(std::string_view name) {
  using lockstep::GetResult;
  if (name == "ws") return GetResult(world_size);
  if (name == "rank" || name == "grank") return GetResult(rank);
  if (name == "lrank") return GetResult(local_rank);
  if (name == "pg") return GetResult(lockstep::dist::default_group());
  throw std::invalid_argument("get(\"" + std::string(name) +
                              "\"): there are \"ws\", \"rank\", \"grank\", \"lrank\" and \"pg\"");
}

void set_seed(uint64_t seed) {
  torch::manual_seed(seed);
  std::srand(static_cast<unsigned>(seed));
}

void on_preempt(std::function<void()> save) { lockstep::worker::keep_for_preemption(std::move(save)); }

namespace lockstep {

const char* Interrupted::what() const noexcept { return "interrupted"; }

GetResult::operator int() const {
  if (group_) throw std::logic_error("get(\"pg\") is the process group and no number");
  return number_;
}

GetResult::operator c10::intrusive_ptr<c10d::ProcessGroup>() const {
  if (!group_) throw std::logic_error("only get(\"pg\") is a process group");
  return group_;
}

c10d::ProcessGroup* GetResult::operator->() const {
  if (!group_) throw std::logic_error("only get(\"pg\") is a process group");
  return group_.get();
}

std::ostream& operator<<(std::ostream& stream, const GetResult& got) {
  if (!got.group_) return stream << got.number_;
  return stream << "process group " << dist::get_group_name(got.group_) << " (" << dist::get_backend(got.group_) << ", "
                << got.group_->getSize() << " ranks)";
}

namespace detail {
namespace {

template <typename Number>
Number parse(std::string_view name, const char* kind) {
  const std::string text = argument(name);
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end)
    throw std::invalid_argument("--arg " + std::string(name) + "=" + text + ": it has to be " + kind);
  return number;
}

}  // namespace

bool has_argument(std::string_view name) { return configuration().arguments.contains(std::string(name)); }

std::string argument(std::string_view name) {
  const auto& arguments = configuration().arguments;
  const auto found = arguments.find(std::string(name));
  if (found == arguments.end())
    throw std::out_of_range("no argument '" + std::string(name) + "' was given: pass --arg " + std::string(name) +
                            "=VALUE, or say arg(\"" + std::string(name) + "\", DEFAULT)");
  return found->second;
}

int64_t integer_argument(std::string_view name) { return parse<int64_t>(name, "a whole number"); }
double real_argument(std::string_view name) { return parse<double>(name, "a number"); }

bool boolean_argument(std::string_view name) {
  const std::string text = argument(name);
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  throw std::invalid_argument("--arg " + std::string(name) + "=" + text + ": it has to be true or false");
}

}  // namespace detail
}  // namespace lockstep

namespace {
bool is_interrupted_here() {
  namespace worker = lockstep::worker;
  return worker::stop_requests().pending() == worker::StopReason::interrupt && worker::may_throw_here();
}
}  // namespace

extern "C" void lockstep_poll() {
  if (is_interrupted_here() && !lockstep::worker::throwing_would_terminate()) throw lockstep::Interrupted();
}

void lockstep::worker::leave_call(Leaving leaving) {
  if (is_interrupted_here() && may_leave_call(leaving)) throw lockstep::Interrupted();
}
