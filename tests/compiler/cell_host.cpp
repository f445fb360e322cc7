// Stands in for a worker: loads cells and runs their steps, with nothing around them. Answers over a channel, so that
// what cells print stays apart.
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "protocol/cell_abi.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"
#include "worker/cell/cell.h"

int32_t lockstep_poll_requested = 0;
static int polls = 0;
void lockstep_poll() {
  if (++polls >= 3) {
    lockstep_poll_requested = 0;
    polls = 0;
    throw lockstep::Interrupted();
  }
}

const int rank = std::atoi(std::getenv("LOCKSTEP_RANK"));
const int world_size = std::atoi(std::getenv("LOCKSTEP_WORLD_SIZE"));
const int local_rank = rank;
const int node_rank = 0;
const int gpu_id = -1;
const torch::Device device = torch::kCPU;

namespace lockstep {

const char* Interrupted::what() const noexcept { return "interrupted"; }

GetResult::operator int() const { return number_; }

/// Without the tags of cells, which the worker takes out.
static std::string name(const std::type_info& type) {
  std::string text = c10::demangle(type.name());
  for (size_t at = text.find("[abi:"); at != std::string::npos; at = text.find("[abi:"))
    text.erase(at, text.find(']', at) + 1 - at);
  return text;
}

struct ValueWriter::Impl {
  std::ostringstream text;
  std::vector<std::pair<char, int>> open;
  bool is_key = false;
  void separate() {
    if (is_key) is_key = false;
  }
};
ValueWriter::ValueWriter() : impl_(std::make_unique<Impl>()) {}
ValueWriter::~ValueWriter() = default;
void ValueWriter::boolean(bool value) { impl_->text << (value ? "true" : "false"); }
void ValueWriter::integer(int64_t value) { impl_->text << value; }
void ValueWriter::natural(uint64_t value) { impl_->text << value; }
void ValueWriter::real(double value, int) { impl_->text << value; }
void ValueWriter::character(uint32_t code) { impl_->text << '\'' << static_cast<char>(code) << '\''; }
void ValueWriter::string(std::string_view value) { impl_->text << '"' << value << '"'; }
void ValueWriter::null(std::string_view text) { impl_->text << text; }
void ValueWriter::tensor(const at::Tensor& value) { impl_->text << "tensor" << value.sizes(); }
void ValueWriter::pointer(const void* value, const std::type_info&) { impl_->text << (value ? "pointer" : "nullptr"); }
void ValueWriter::long_real(long double value) { impl_->text << value; }
void ValueWriter::big_integer(unsigned __int128 value, bool) { impl_->text << static_cast<uint64_t>(value); }
void ValueWriter::wide_string(const void*, size_t count, size_t) { impl_->text << "wide string of " << count; }
void ValueWriter::enumerator(int64_t value, const std::type_info&, const char*) { impl_->text << value; }
void ValueWriter::time(double seconds, bool) { impl_->text << seconds; }
void ValueWriter::exception(const std::exception& error) { impl_->text << '<' << error.what() << '>'; }
void ValueWriter::exception(const std::exception_ptr&) { impl_->text << "<exception>"; }
void ValueWriter::lambda(const char*) { impl_->text << "<lambda>"; }
void ValueWriter::iterator(const std::type_info& element) { impl_->text << "<iterator to " << name(element) << '>'; }
void ValueWriter::holder(const char* name, const std::type_info&) { impl_->text << '<' << name << '>'; }
void ValueWriter::duration(double count, int64_t, int64_t) { impl_->text << count; }
void ValueWriter::streamed(const void* value, void (*print)(std::ostream&, const void*)) { print(impl_->text, value); }
void ValueWriter::name_of(const std::type_info& type) { impl_->text << '<' << name(type) << '>'; }
void ValueWriter::begin_list() { impl_->text << '{', impl_->open.emplace_back('}', 0); }
void ValueWriter::begin_map() { impl_->text << '{', impl_->open.emplace_back('}', 0); }
void ValueWriter::begin_tuple() { impl_->text << '(', impl_->open.emplace_back(')', 0); }
bool ValueWriter::begin_fields(const std::type_info& type, const char*) {
  impl_->text << name(type) << '{', impl_->open.emplace_back('}', 0);
  return true;
}
bool ValueWriter::item() {
  if (impl_->open.back().second++ > 0) impl_->text << ", ";
  return true;
}
void ValueWriter::key() {}
void ValueWriter::end(size_t) {
  impl_->text << impl_->open.back().first;
  impl_->open.pop_back();
}
void ValueWriter::send(std::string_view label) {
  std::cout << "=> " << label << (label.empty() ? "" : ": ") << impl_->text.str() << std::endl;
}

namespace detail {
void keep_object(void* object, const std::type_info&, bool, void (*destroy)(void*)) { destroy(object); }
void keep_place(void*, const std::type_info&) {}
void* kept_value(int64_t, const std::type_info&) { throw std::out_of_range("nothing is kept"); }
std::string argument(std::string_view name) { return std::string(name); }
bool has_argument(std::string_view) { return false; }
int64_t integer_argument(std::string_view) { return 0; }
double real_argument(std::string_view) { return 0; }
bool boolean_argument(std::string_view) { return false; }
}  // namespace detail

}  // namespace lockstep

lockstep::GetResult get(std::string_view name) { return lockstep::GetResult(name == "ws" ? world_size : rank); }
void set_seed(uint64_t seed) { torch::manual_seed(seed); }

namespace {

std::string type_name() {
  const auto* type = abi::__cxa_current_exception_type();
  return type ? c10::demangle(type->name()) : "?";
}

/// What was printed since the last call.
std::string take_output(int file) {
  std::cout.flush();
  std::fflush(stdout);
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string text(static_cast<size_t>(size), '\0');
  if (::pread(file, text.data(), text.size(), 0) != size) text.clear();
  if (::ftruncate(file, 0) != 0 || ::lseek(file, 0, SEEK_SET) != 0) std::abort();
  return text;
}

int64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

nlohmann::json load(const nlohmann::json& request) {
  void* handle = ::dlopen(request.at("path").get<std::string>().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return {{"problem", ::dlerror()}};
  if (!request.contains("entry")) return {{"problem", nullptr}};
  const auto* entry =
      static_cast<const lockstep_cell_entry*>(::dlsym(handle, request.at("entry").get<std::string>().c_str()));
  if (!entry) return {{"problem", "no entry"}};
  if (entry->abi != lockstep::kCellAbi) return {{"problem", "another ABI"}};
  return {{"problem", nullptr}, {"entry", reinterpret_cast<uintptr_t>(entry)}, {"steps", entry->step_count}};
}

nlohmann::json run(const nlohmann::json& request) {
  const auto* entry = reinterpret_cast<const lockstep_cell_entry*>(request.at("entry").get<uintptr_t>());
  uint32_t done = 0;
  std::string error;
  try {
    for (; done < entry->step_count; ++done) entry->steps[done]();
  } catch (const std::exception& exception) {
    const std::string what = exception.what();
    error = type_name() + ": " + what.substr(0, what.find('\n'));
  } catch (...) {  // a cell may throw anything
    error = type_name();
  }
  return {{"done", done}, {"error", error}};
}

}  // namespace

int main(int, char** argv) {
  const int channel = std::atoi(argv[1]);
  const int output = ::memfd_create("output", MFD_CLOEXEC);
  if (output < 0 || ::dup2(output, STDOUT_FILENO) < 0) return 1;
  torch::set_num_threads(1);
  try {
    while (auto message = lockstep::protocol::receive_message(channel)) {
      const auto& request = message->header;
      nlohmann::json reply;
      if (request.at("do") == "load") reply = load(request);
      if (request.at("do") == "run") reply = run(request);
      if (request.at("do") == "interrupt") lockstep_poll_requested = 1;
      reply["output"] = take_output(output);
      reply["mappings"] = mappings();
      lockstep::protocol::send_message(channel, {reply, {}});
    }
  } catch (const lockstep::ChannelError&) {
    // The test is over.
  }
  ::_exit(0);
}
