// %%writefile writes the rest of the cell into a file.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

void writefile(MagicCall& call, CellSettings& settings) {
  const bool append = call.given.has("--append");
  const fs::path path = (fs::path(call.session.directory()) / *call.given.word()).lexically_normal();
  settings.run = [&session = call.session, path, append, text = call.body](const CellSettings&) {
    std::error_code error;
    if (fs::is_directory(path, error)) throw UsageError(path.string() + " is a folder; name a file");
    const bool existed = fs::exists(path, error);
    errno = 0;
    std::ofstream file(path, std::ios::binary | (append ? std::ios::app : std::ios::trunc));
    file << text;
    file.close();
    if (!file)
      throw UsageError(path.string() + " can't be written (" + std::strerror(errno) +
                       "); choose another folder, or make room");
    session.message((append && existed ? "appended to "
                     : existed         ? "wrote over "
                                       : "wrote ") +
                        path.string(),
                    {{"file", path.string()}, {"bytes", text.size()}});
  };
}

const RegisterMagic kWritefile({.name = "writefile",
                                .summary = "writes the rest of the cell to a file, as it stands; -a appends",
                                .help = "The text may be of any kind: magics in it are text, too.\n"
                                        "A header that has been written so is read afresh by the next #include of it.",
                                .cell_takes = {{"FILE", "relative to the working directory (%cd)"},
                                               {"-a,--append", "append to the file"}},
                                .cell = writefile,
                                .in_jobs = true,
                                .takes_text = true});

}  // namespace
}  // namespace lockstep::shell
