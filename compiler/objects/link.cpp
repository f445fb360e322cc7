#include "compiler/objects/link.h"

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "compiler/objects/symbol_table.h"

LLD_HAS_DRIVER(elf)

namespace lockstep::compiler {

namespace {

/// A file that exists in memory only.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(::memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error(std::string("no memory for an object file: ") + std::strerror(errno));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  int fd() const { return fd_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(std::string("no memory for an object file: ") + std::strerror(errno));
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  std::string read() const {
    struct stat status;
    if (::fstat(fd_, &status) != 0) throw std::runtime_error("an object file is gone");
    std::string bytes(static_cast<size_t>(status.st_size), '\0');
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error("an object file was cut short");
      done += static_cast<size_t>(n);
    }
    return bytes;
  }

 private:
  int fd_;
};

/// lld's message without its name and that of the object file.
std::string short_message(std::string text, const std::string& file) {
  const auto take_out = [&text](const std::string& part) {
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
  };
  take_out("ld.lld: error: ");
  take_out(file + ":");
  take_out(file);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

}  // namespace

std::string link_shared(std::string_view object) {
  const MemoryFile input("cell.o"), output("cell.so");
  input.write(object);
  const std::string input_path = input.path();
  // With "-o -" lld builds the object in memory and writes it to descriptor 1, without a file.
  // One thread: lld's pool would not survive a fork. --eh-frame-hdr: without it every exception is terminate().
  // As few segments as possible: each one is a mapping, of which a process may have 65,530. No soname: the dynamic
  // loader compares it with the name of each object that it opens later.
  const char* arguments[] = {"ld.lld",
                             "-shared",
                             "-o",
                             "-",
                             "--eh-frame-hdr",
                             "--threads=1",
                             "-z",
                             "undefs",
                             "--no-rosegment",
                             "-z",
                             "norelro",
                             "-z",
                             "noseparate-code",
                             "-z",
                             "now",
                             "--hash-style=gnu",
                             "--build-id=none",
                             "--compress-debug-sections=zlib",
                             "--no-dependent-libraries",
                             input_path.c_str()};
  std::string words;
  llvm::raw_string_ostream stream(words);
  const int saved = ::dup(STDOUT_FILENO);
  if (::dup2(output.fd(), STDOUT_FILENO) < 0) throw std::runtime_error("no descriptor is left for the linker");
  const auto result = lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (saved >= 0) {
    ::dup2(saved, STDOUT_FILENO);
    ::close(saved);
  }
  if (result.retCode != 0)
    throw std::runtime_error("the cell's code can't be linked: " + short_message(std::move(words), input_path));
  std::string object_file = output.read();
  keep_definitions(object_file);
  return object_file;
}

}  // namespace lockstep::compiler
