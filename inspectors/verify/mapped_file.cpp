#include "inspectors/verify/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "protocol/descriptor.h"

namespace lockstep::inspect {

MappedFile::MappedFile(const std::string& path) {
  // A pipe would keep its reader waiting.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  const bool known = file && ::fstat(file.get(), &status) == 0;
  if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    // Private, since tensors of it may be written to.
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (mapped != MAP_FAILED) data_ = static_cast<char*>(mapped);
  }
  const int reason = errno;
  if (known && !S_ISREG(status.st_mode)) throw std::runtime_error("it is no regular file");
  if (!data_) throw std::runtime_error(fmt::format("it can't be mapped ({})", std::strerror(reason)));
}

MappedFile::~MappedFile() { ::munmap(data_, size_); }

char* MappedFile::at(uint64_t offset, uint64_t count) const {
  if (offset > size_ || count > size_ - offset) throw std::runtime_error("it ends early");
  return data_ + offset;
}

}  // namespace lockstep::inspect
