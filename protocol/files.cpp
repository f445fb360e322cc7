#include "protocol/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "protocol/descriptor.h"
#include "protocol/error.h"

namespace lockstep::protocol {

std::optional<std::string> read_file(const std::string& path, size_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  Reading found = file ? Reading::bytes : Reading::failed;
  while (found == Reading::bytes && text.size() <= most) found = read_some(file.get(), text);
  if (found == Reading::end) return text;
  if (found == Reading::bytes) errno = EFBIG;
  return std::nullopt;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int replace_file(const std::string& path, std::string_view bytes, mode_t mode) {
  // A name that no other thread, and no other machine that shares the folder, takes.
  uint64_t random = 0;
  if (::getentropy(&random, sizeof random) != 0) return errno;
  const std::string fresh = path + "." + std::to_string(random);
  Descriptor file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) return errno;
  if (write_all(file.get(), bytes) && file.reset() && ::rename(fresh.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  ::unlink(fresh.c_str());
  return error;
}

void write_at_once(const std::string& path, const std::string& text) {
  if (const int error = replace_file(path, text, 0600))
    throw Error(path + " could not be written: " + std::strerror(error));
}

}  // namespace lockstep::protocol
