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

#include "compiler/objects/shared_object.h"
#include "compiler/objects/symbol_table.h"
#include "protocol/descriptor.h"

LLD_HAS_DRIVER(elf)

namespace lockstep::compiler {

namespace {

/// A file that exists in memory only.
Descriptor memory_file(const char* name) {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) throw std::runtime_error(std::string("no memory for an object file: ") + std::strerror(errno));
  return file;
}

std::string contents_of(const Descriptor& file) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) throw std::runtime_error("an object file is gone");
  std::string bytes = read_at(file.get(), static_cast<size_t>(status.st_size));
  if (std::ssize(bytes) != status.st_size) throw std::runtime_error("an object file was cut short");
  return bytes;
}

/// Returns lld's message without its name and that of the object file.
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
  if (auto written = write_shared(object)) return std::move(*written);
  const Descriptor input = memory_file("cell.o"), output = memory_file("cell.so");
  if (!write_all(input.get(), object))
    throw std::runtime_error(std::string("no memory for an object file: ") + std::strerror(errno));
  const std::string input_path = "/proc/self/fd/" + std::to_string(input.get());
  // With "-o -" lld builds the object in memory and writes it to descriptor 1, without a file.
  // One thread: lld's pool would not survive a fork. --eh-frame-hdr: without it every exception is terminate().
  // There are as few segments as possible: each one is a mapping, of which a process may have 65,530. No soname: the dynamic
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
  const Descriptor saved(::dup(STDOUT_FILENO));
  if (::dup2(output.get(), STDOUT_FILENO) < 0) throw std::runtime_error("no descriptor is left for the linker");
  const auto result = lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (saved) ::dup2(saved.get(), STDOUT_FILENO);
  if (result.retCode != 0)
    throw std::runtime_error("the cell's code can't be linked: " + short_message(std::move(words), input_path));
  std::string object_file = contents_of(output);
  keep_definitions(object_file);
  return object_file;
}

}  // namespace lockstep::compiler
