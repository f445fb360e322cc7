#include "shell/look/native_stack.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "protocol/libdw.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostFrames = 256;
constexpr uintptr_t kPage = 4096;

using protocol::libdw;

/// The memory of another process, as a file: some containers allow that and no call of ptrace(2).
class Memory {
 public:
  explicit Memory(int64_t pid) : file_(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC)) {}

  /// Returns how many bytes were read: fewer where the mapping ends, -1 where there is none.
  ssize_t read(uintptr_t address, void* data, size_t size) const {
    return uninterrupted([&] { return ::pread(file_.get(), data, size, static_cast<off_t>(address)); });
  }

 private:
  Descriptor file_;
};

/// The registers of a thread, as DWARF numbers them on x86_64: 7 is the stack pointer, 16 the instruction pointer.
struct Registers {
  std::array<Dwarf_Word, 17> all = {};
  bool complete = false;  // else the stack pointer and the instruction pointer alone
};

/// A process whose stacks are taken.
class UnwoundProcess {
 public:
  explicit UnwoundProcess(int64_t pid) : memory_(pid) {
    callbacks_.find_elf = libdw().find_elf;
    callbacks_.find_debuginfo = protocol::no_debug_file;
    dwfl_ = libdw().begin(&callbacks_);
    const auto number = static_cast<pid_t>(pid);
    if (!dwfl_ || libdw().report(dwfl_, number) != 0 || libdw().report_end(dwfl_, nullptr, nullptr) != 0) return;
    threads_.next_thread = [](Dwfl*, void* argument, void** thread) {
      *thread = argument;
      return std::exchange(static_cast<UnwoundProcess*>(argument)->next_, 0);
    };
    threads_.memory_read = [](Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* argument) {
      return static_cast<UnwoundProcess*>(argument)->read_word(address, *result);
    };
    threads_.set_initial_registers = [](Dwfl_Thread* thread, void* argument) {
      const Registers& registers = static_cast<UnwoundProcess*>(argument)->registers_;
      const Dwarf_Word* const all = registers.all.data();
      if (registers.complete) return libdw().set_registers(thread, 0, registers.all.size(), all);
      return libdw().set_registers(thread, 7, 1, all + 7) && libdw().set_registers(thread, 16, 1, all + 16);
    };
    is_attached_ = libdw().attach(dwfl_, nullptr, number, &threads_, this);
  }
  ~UnwoundProcess() {
    if (dwfl_) libdw().end(dwfl_);
  }
  UnwoundProcess(const UnwoundProcess&) = delete;
  UnwoundProcess& operator=(const UnwoundProcess&) = delete;

  Dwfl* dwfl() const { return dwfl_; }

  /// Returns addresses inside of the calling instructions, innermost first. `outermost`: whether the last one is that of
  /// the thread's first function.
  std::vector<uintptr_t> addresses(int64_t thread, const Registers& registers, bool& outermost) {
    std::vector<uintptr_t> found;
    if (!is_attached_) return found;
    registers_ = registers;
    next_ = static_cast<pid_t>(thread);
    pages_.clear();
    const int result = libdw().frames_of(
        dwfl_, static_cast<pid_t>(thread),
        [](Dwfl_Frame* frame, void* argument) {
          auto& all = *static_cast<std::vector<uintptr_t>*>(argument);
          Dwarf_Addr address = 0;
          bool exact = false;
          if (!libdw().address_of(frame, &address, &exact) || address == 0) return static_cast<int>(DWARF_CB_ABORT);
          all.push_back(exact ? address : address - 1);
          return static_cast<int>(all.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT);
        },
        &found);
    outermost = result == 0 && found.size() > 1;
    return found;
  }

  inspect::StackFrame frame_at(uintptr_t address) const {
    // Names are searched for in all symbols of a library, and ranks are in the same places.
    static std::map<std::pair<std::string, uintptr_t>, std::string> known;
    Dwfl_Module* const module = libdw().module_of(dwfl_, address);
    if (!module) return {};
    Dwarf_Addr begin = 0;
    const char* const path = libdw().module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
    const std::string file = path ? path : "";
    const auto [entry, is_new] = known.try_emplace({file, address - begin});
    if (const char* name = is_new ? libdw().name_of(module, address) : nullptr) {
      int status = 0;
      const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                             std::free);
      entry->second = text ? text.get() : name;
    }
    return {.function = entry->second, .object = file.substr(file.rfind('/') + 1)};
  }

 private:
  bool read_word(uintptr_t address, Dwarf_Word& word) {
    const uintptr_t base = address & ~(kPage - 1);
    if (address - base > kPage - sizeof word) return memory_.read(address, &word, sizeof word) == sizeof word;
    const auto [page, is_new] = pages_.try_emplace(base);
    if (is_new) {
      page->second.resize(kPage);
      if (memory_.read(base, page->second.data(), kPage) != static_cast<ssize_t>(kPage)) page->second.clear();
    }
    if (page->second.empty()) return false;
    std::memcpy(&word, page->second.data() + (address - base), sizeof word);
    return true;
  }

  const Memory memory_;
  Dwfl_Callbacks callbacks_ = {};
  Dwfl_Thread_Callbacks threads_ = {};
  Dwfl* dwfl_ = nullptr;
  bool is_attached_ = false;
  pid_t next_ = 0;
  Registers registers_;
  std::map<uintptr_t, std::string> pages_;
};

/// Returns the registers that /proc shows of a thread that waits in a system call; nothing of one that runs.
std::optional<Registers> registers_of_call(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> fields;
  for (std::string word; words >> word;) fields.push_back(word);
  if (fields.size() < 3) return std::nullopt;  // "running"
  Registers found;
  found.all[7] = std::stoull(fields[fields.size() - 2], nullptr, 16);
  found.all[16] = std::stoull(fields.back(), nullptr, 16);
  return found;
}

/// A thread that stands still while this lives. PTRACE_SEIZE sends no signal: nothing is left of it should this process
/// be killed meanwhile.
class Stopped {
 public:
  explicit Stopped(int64_t thread) : thread_(static_cast<pid_t>(thread)) {
    if (::ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) {
      error_ = errno;
      return;
    }
    int status = 0;
    if (::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0 ||
        uninterrupted([&] { return ::waitpid(thread_, &status, __WALL); }) < 0)
      error_ = errno;
    else if (!WIFSTOPPED(status))
      error_ = ESRCH;
    else if (status >> 16 != PTRACE_EVENT_STOP)
      signal_ = WSTOPSIG(status);  // it was about to take one, and gets it afterwards
  }
  ~Stopped() { ::ptrace(PTRACE_DETACH, thread_, nullptr, reinterpret_cast<void*>(static_cast<intptr_t>(signal_))); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

  int error() const { return error_; }

  std::optional<Registers> registers() const {
    user_regs_struct now = {};
    if (error_ != 0 || ::ptrace(PTRACE_GETREGS, thread_, nullptr, &now) != 0) return std::nullopt;
    return Registers{.all = {now.rax, now.rdx, now.rcx, now.rbx, now.rsi, now.rdi, now.rbp, now.rsp, now.r8, now.r9,
                             now.r10, now.r11, now.r12, now.r13, now.r14, now.r15, now.rip},
                     .complete = true};
  }

 private:
  const pid_t thread_;
  int error_ = 0, signal_ = 0;
};

bool is_refusal(int error) { return error == EPERM || error == EACCES; }

}  // namespace

NativeStack native_stack(int64_t pid, int64_t thread) {
  NativeStack stack;
  if (!libdw()) {
    stack.problem = "libdw.so.1 is not there: install libdw1 (of elfutils)";
    return stack;
  }
  const std::string path = fmt::format("/proc/{}/task/{}/syscall", pid, thread);
  const auto call = protocol::read_file(path);
  if (!call) {
    stack.refused = is_refusal(errno);
    stack.problem = fmt::format("{}: {}", path, std::strerror(errno));
    return stack;
  }
  UnwoundProcess process(pid);
  std::vector<uintptr_t> addresses;
  bool outermost = false;
  if (const auto registers = registers_of_call(*call)) {
    addresses = process.addresses(thread, *registers, outermost);
    // It has moved, and what was read may be of two moments.
    if (protocol::read_file(path) != call) outermost = false;
  }
  if (!outermost) {
    const Stopped stopped(thread);
    stack.stopped = stopped.error() == 0;
    if (const auto registers = stopped.registers()) {
      addresses = process.addresses(thread, *registers, outermost);
    } else {
      stack.refused = is_refusal(stopped.error());
      stack.problem = fmt::format("thread {} can't be stopped: {}", thread, std::strerror(stopped.error()));
    }
  }
  for (const uintptr_t address : addresses) stack.frames.push_back(process.frame_at(address));
  return stack;
}

std::map<std::string, std::string> live_environment(int64_t pid) {
  std::map<std::string, std::string> variables;
  if (!libdw()) return variables;
  const UnwoundProcess process(pid);
  if (!process.dwfl()) return variables;
  // An executable that is linked to a fixed address has its own copy of the variable, which the C library uses.
  uintptr_t environ = 0;
  libdw().modules_of(
      process.dwfl(),
      [](Dwfl_Module* module, void**, const char* name, Dwarf_Addr, void* argument) {
        const std::string_view file = std::string_view(name).substr(std::string_view(name).rfind('/') + 1);
        if (!file.starts_with("python") && !file.starts_with("libc.so") && !file.starts_with("libc-"))
          return static_cast<int>(DWARF_CB_OK);
        const int count = libdw().symbols_of(module);
        for (int i = 1; i < count; ++i) {
          GElf_Sym symbol;
          GElf_Word section = 0;
          const char* const found = libdw().symbol_of(module, i, &symbol, &section);
          if (!found || section == SHN_UNDEF ||
              (std::strcmp(found, "environ") != 0 && std::strcmp(found, "__environ") != 0))
            continue;
          *static_cast<uintptr_t*>(argument) = symbol.st_value;
          return static_cast<int>(DWARF_CB_ABORT);
        }
        return static_cast<int>(DWARF_CB_OK);
      },
      &environ, 0);
  uintptr_t entries = 0;
  const Memory memory(pid);
  if (environ == 0 || memory.read(environ, &entries, sizeof entries) != sizeof entries) return variables;
  constexpr size_t kMostVariables = 4096, kLongest = 4096;
  for (size_t i = 0; i < kMostVariables; ++i) {
    uintptr_t entry = 0;
    if (memory.read(entries + i * sizeof entry, &entry, sizeof entry) != sizeof entry || entry == 0) break;
    std::string text(kLongest, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(memory.read(entry, text.data(), kLongest), 0)));
    text.resize(std::min(text.find('\0'), text.size()));
    if (const size_t sign = text.find('='); sign != std::string::npos)
      variables.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return variables;
}

}  // namespace lockstep::shell
