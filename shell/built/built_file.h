// A FILE.lockstep holds session scripts with the objects of their cells; `lockstep build` makes it. docs/build.md
// describes the bytes.
//
// What is kept of the compiler are takes: each is a run of the scripts on some ranks, as the compiler saw it. A take
// lists the requests and their answers in the words of protocol/compiler_messages.h, so that the views of its ranks can
// be followed. The first take is that in which every cell ran to its end; in others a cell ended early on some ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/compiler_messages.h"
#include "shell/scripts/script.h"

namespace lockstep::shell {

inline constexpr std::string_view kBuiltMagic{"\x7fLOCKSTEP\r\n\x1a\n\0\0\0", 16};
inline constexpr uint32_t kBuiltFormat = 1;

/// A request to the compiler, its answer, and what followed.
struct BuiltStep {
  protocol::CompilerRequest request;  // Compile, Forget or Inspect
  protocol::CompilerResponse answer;  // of a Compile: CompiledObject::frame is an index of BuiltFile::blobs
  std::optional<protocol::Settle> settle;  // of a Compile that succeeded
  std::optional<protocol::Names> names;  // that cells had defined after it, where they are others than before it
};

/// Takes share the steps that are the same in them.
using BuiltSteps = std::vector<std::shared_ptr<const BuiltStep>>;

struct Take {
  int ranks = 0;
  std::vector<BuiltSteps> sessions;  // more than one where a script ends the ranks and starts others
};

struct BuiltScript {
  std::string name;
  std::vector<ScriptCell> cells;
};

struct BuiltFile {
  Versions versions;  // of what built it: protocol, Lockstep, LibTorch, compiler
  uint32_t cell_abi = 0;
  std::string headers;  // protocol::header_digest()
  std::string machine;  // "x86_64"
  std::optional<int> ranks;  // -n of the build
  bool debug_cells = false;
  std::vector<BuiltScript> scripts;
  std::vector<Take> takes;
  size_t prelude = 0;  // index of blobs
  std::vector<std::string> blobs;  // shared objects
};

/// Whether `path` is a regular file that begins as a built file does. False where it can't be read.
bool is_built_file(const std::string& path);

/// Throws UsageError that names `path` and says what to do: it can't be read, is no such file, is damaged, or is of a
/// format or of versions that this program can't run.
BuiltFile read_built_file(const std::string& path);

/// Does the same for bytes. Versions are not compared.
BuiltFile parse_built_file(std::string_view bytes, const std::string& path);
void check_versions(const BuiltFile& file, const std::string& path);

/// Sets versions, ABI and machine of this program, for a file that it builds.
void set_versions(BuiltFile& file, const Versions& compiler);

std::string serialize(const BuiltFile& file);
/// Writes the file under another name first, so that `path` is the old one or complete. Throws UsageError.
void write_built_file(const BuiltFile& file, const std::string& path);

}  // namespace lockstep::shell
