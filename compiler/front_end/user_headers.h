// Finds the user's headers in the session's directory and in -I folders, and reads them again when they have changed on
// disk, include guards or not.
//
// Clang reads a file once, and then knows it by its name. So when a header has changed, the folders are spelled in
// another way (DIR/. is DIR), the changed files and those that include them get a new identity, and their guard macros
// are undefined.
//
// A header that %lib names is the library's, as are those that it includes: they are read once. Where a cell has read
// one of them as the user's before, it is read again.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// Returns a path as files are known by here: without . and ..
std::string without_dots(llvm::StringRef path);

/// Knows the version of each file. The file system that clang reads from and UserHeaders share it.
struct FileVersions {
  std::map<std::string, unsigned> versions;  // path without dots → version; absent: 0
};

/// Returns the real file system, in which a file of a new version is another file.
llvm::IntrusiveRefCntPtr<llvm::vfs::FileSystem> versioned_files(std::shared_ptr<FileVersions> versions);

class UserHeaders : public clang::PPCallbacks {
 public:
  /// Starts to watch what `instance` includes. The preprocessor owns the result. `versions` are those of its file
  /// system.
  static UserHeaders* watch(clang::CompilerInstance& instance, std::shared_ptr<FileVersions> versions,
                            const std::vector<std::string>& include_dirs);

  /// Checks the headers that were read, and makes clang read those again that have changed, and those at `again`.
  /// Includes are searched in `directory` first.
  void start_cell(const std::string& directory, const std::set<std::string>& again);
  /// Returns paths of headers that the cell includes as a library's, with those below them, and which were read as the
  /// user's before: clang has skipped them.
  const std::set<std::string>& skipped() const { return skipped_; }
  /// Maps how folders are currently spelled to how the user knows them.
  std::vector<std::pair<std::string, std::string>> spelled_paths() const;

  void InclusionDirective(clang::SourceLocation place, const clang::Token& token, llvm::StringRef name, bool angled,
                          clang::CharSourceRange range, clang::OptionalFileEntryRef file, llvm::StringRef path,
                          llvm::StringRef relative, const clang::Module* module, bool imported,
                          clang::SrcMgr::CharacteristicKind kind) override;
  void FileSkipped(const clang::FileEntryRef& file, const clang::Token& name,
                   clang::SrcMgr::CharacteristicKind kind) override;

 private:
  struct Header {
    std::string stamp;  // size and time, when it was read
    std::set<std::string> includers;  // paths
    clang::OptionalFileEntryRef entry;
  };
  UserHeaders(clang::CompilerInstance& instance, std::shared_ptr<FileVersions> versions,
              const std::vector<std::string>& include_dirs);
  void undefine_guards(const std::set<std::string>& changed);
  void set_search_paths();

  clang::CompilerInstance& instance_;
  std::shared_ptr<FileVersions> versions_;
  std::vector<std::string> include_dirs_;
  std::string directory_;
  std::string spelled_;  // "", "/.", "/./." ...
  std::vector<clang::DirectoryLookup> base_;  // without the session's own folders
  unsigned base_angled_ = 0, base_system_ = 0;
  std::map<std::string, Header> headers_;
  std::set<std::string> skipped_;
};

}  // namespace lockstep::compiler
