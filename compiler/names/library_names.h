// A file beside the precompiled header lists the names that it defines in each namespace, as completion offers them.
//
//   lockstep names COUNT          COUNT lines follow, one for each namespace
//   BEGIN SIZE NAMESPACE          its lines begin at byte BEGIN after the last of these lines; the global one is ""
//   TEXT \t KIND \t NEARNESS \t PRIORITY \t DETAIL
//
// The file is mapped, and only the lines of the namespaces that a question is about are read.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/compiler_messages.h"

namespace llvm {
class MemoryBuffer;
}

namespace lockstep::compiler {

/// Says how near a name is to what people mean, nearest first.
enum class Nearness { of_cells, of_session, of_libraries, keyword, c_library, macro, reserved };

struct NearCompletion {
  Nearness nearness = Nearness::of_libraries;
  unsigned priority = 0;  // of names that are equally near; lower is better
  protocol::Completion completion;
};

/// Raised when the contents of the file change: it is a part of the name of the folder that holds it.
constexpr int kLibraryNamesVersion = 1;

/// Returns the text of the file. Keys are namespaces as "torch::nn".
std::string library_names_text(const std::map<std::string, std::vector<NearCompletion>>& namespaces);

class LibraryNames {
 public:
  /// Maps the file. Returns nullptr if it can't be read or is not of this form.
  static std::unique_ptr<LibraryNames> read(const std::string& path);
  ~LibraryNames();

  bool has(std::string_view space) const;
  /// Calls `take` for each name of `space` that begins with `prefix`.
  void each(std::string_view space, std::string_view prefix,
            const std::function<void(const NearCompletion&)>& take) const;

 private:
  LibraryNames();

  std::unique_ptr<llvm::MemoryBuffer> file_;
  std::map<std::string, std::string_view, std::less<>> lines_;  // of each namespace; views of the file
};

}  // namespace lockstep::compiler
