#include "shell/events/json_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

JsonWriter::JsonWriter(const std::string& path) {
  int fd = STDOUT_FILENO;
  if (path != "-") {
    file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file_) throw UsageError("--json " + path + " can't be written: " + std::strerror(errno));
    fd = file_.get();
  }
  output_ = std::make_unique<TextOutput>(fd, "--json " + path);
}

void JsonWriter::take(const Event& event) {
  if (std::holds_alternative<ActivityEvent>(event)) return;  // for displays
  nlohmann::json line = to_event_json(event);
  line["time"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  output_->write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep::shell
