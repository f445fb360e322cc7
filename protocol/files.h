// Files that are read and written as a whole.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::protocol {

/// Returns all bytes of a file, one of /proc included; nothing where it can't be read, which errno explains: EFBIG where it
/// has more than `most`.
std::optional<std::string> read_file(const std::string& path, size_t most = SIZE_MAX);

/// Returns the first line of a file, without its end; an empty text where it can't be read.
std::string first_line_of(const std::string& path);

/// Writes a new file with `mode`, less the umask, which takes the place of the one at `path` at once: others see the old file
/// or the new one. Returns 0, or the errno; then the old file stays.
[[nodiscard]] int replace_file(const std::string& path, std::string_view bytes, mode_t mode);

/// Writes such a file for this user only. Throws Error.
void write_at_once(const std::string& path, const std::string& text);

}  // namespace lockstep::protocol
