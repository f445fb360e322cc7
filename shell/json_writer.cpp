#include "shell/json_writer.h"

#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

JsonWriter::JsonWriter(const std::string& path)
    : file_(path == "-" ? stdout : std::fopen(path.c_str(), "we")), name_(path) {
  if (!file_) throw UsageError("--json " + path + " can't be written: " + std::strerror(errno));
}

JsonWriter::~JsonWriter() {
  if (file_ != stdout) std::fclose(file_);
}

void JsonWriter::take(const Event& event) {
  nlohmann::json line = to_event_json(event);
  line["time"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw UsageError("--json " + name_ + " can't be written any more: " + std::strerror(errno));
}

}  // namespace lockstep::shell
