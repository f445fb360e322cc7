#include "compiler/front_end/user_headers.h"

#include <llvm/Support/Path.h>
#include <sys/stat.h>

#include <algorithm>

namespace lockstep::compiler {

using namespace clang;
namespace vfs = llvm::vfs;

std::string without_dots(llvm::StringRef path) {
  llvm::SmallString<256> clean(path);
  llvm::sys::path::remove_dots(clean, /*remove_dot_dot=*/true);
  return clean.str().str();
}

namespace {

std::string stamp_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return std::to_string(status.st_size) + "." + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec) + "." + std::to_string(status.st_ino);
}

vfs::Status with_version(const vfs::Status& status, unsigned version) {
  const auto id = status.getUniqueID();
  const llvm::sys::fs::UniqueID other(id.getDevice() + (uint64_t{version} << 32), id.getFile());
  return vfs::Status(status.getName(), other, status.getLastModificationTime(), status.getUser(), status.getGroup(),
                     status.getSize(), status.getType(), status.getPermissions());
}

class VersionedFile : public vfs::File {
 public:
  VersionedFile(std::unique_ptr<vfs::File> file, unsigned version) : file_(std::move(file)), version_(version) {}
  llvm::ErrorOr<vfs::Status> status() override {
    auto status = file_->status();
    if (!status) return status;
    return with_version(*status, version_);
  }
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> getBuffer(const llvm::Twine& name, int64_t size, bool terminated,
                                                               bool) override {
    return file_->getBuffer(name, size, terminated, /*IsVolatile=*/true);  // read, not mapped: it may change
  }
  std::error_code close() override { return file_->close(); }

 private:
  std::unique_ptr<vfs::File> file_;
  unsigned version_;
};

class VersionedFiles : public vfs::ProxyFileSystem {
 public:
  explicit VersionedFiles(std::shared_ptr<FileVersions> versions)
      : ProxyFileSystem(vfs::getRealFileSystem()), versions_(std::move(versions)) {}

  llvm::ErrorOr<vfs::Status> status(const llvm::Twine& path) override {
    auto status = ProxyFileSystem::status(path);
    const unsigned version = version_of(path);
    if (!status || version == 0) return status;
    return with_version(*status, version);
  }
  llvm::ErrorOr<std::unique_ptr<vfs::File>> openFileForRead(const llvm::Twine& path) override {
    auto file = ProxyFileSystem::openFileForRead(path);
    const unsigned version = version_of(path);
    if (!file || version == 0) return file;
    return std::make_unique<VersionedFile>(std::move(*file), version);
  }

 private:
  unsigned version_of(const llvm::Twine& path) const {
    if (versions_->versions.empty()) return 0;
    const auto found = versions_->versions.find(without_dots(path.str()));
    return found == versions_->versions.end() ? 0 : found->second;
  }

  std::shared_ptr<FileVersions> versions_;
};

}  // namespace

llvm::IntrusiveRefCntPtr<vfs::FileSystem> versioned_files(std::shared_ptr<FileVersions> versions) {
  return llvm::makeIntrusiveRefCnt<VersionedFiles>(std::move(versions));
}

UserHeaders::UserHeaders(CompilerInstance& instance, std::shared_ptr<FileVersions> versions,
                         const std::vector<std::string>& include_dirs)
    : instance_(instance), versions_(std::move(versions)), include_dirs_(include_dirs) {
  const auto& search = instance.getPreprocessor().getHeaderSearchInfo();
  for (const auto& folder : search.search_dir_range()) base_.push_back(folder);
  base_angled_ = static_cast<unsigned>(search.searchDirIdx(*search.angled_dir_begin()));
  base_system_ = static_cast<unsigned>(search.searchDirIdx(*search.system_dir_begin()));
}

UserHeaders* UserHeaders::watch(CompilerInstance& instance, std::shared_ptr<FileVersions> versions,
                                const std::vector<std::string>& include_dirs) {
  auto owned = std::unique_ptr<UserHeaders>(new UserHeaders(instance, std::move(versions), include_dirs));
  auto* headers = owned.get();
  instance.getPreprocessor().addPPCallbacks(std::move(owned));
  headers->set_search_paths();
  return headers;
}

void UserHeaders::set_search_paths() {
  auto& files = instance_.getFileManager();
  std::vector<DirectoryLookup> folders(base_.begin(), base_.begin() + base_angled_);
  const auto add = [&](const std::string& folder) {
    if (auto entry = files.getOptionalDirectoryRef(folder + spelled_))
      folders.emplace_back(*entry, SrcMgr::C_User, /*isFramework=*/false);
  };
  if (!directory_.empty()) add(directory_);
  const auto angled = static_cast<unsigned>(folders.size());
  for (const auto& folder : include_dirs_) add(folder);
  const auto own = static_cast<unsigned>(folders.size()) - base_angled_;
  folders.insert(folders.end(), base_.begin() + base_angled_, base_.end());
  instance_.getPreprocessor().getHeaderSearchInfo().SetSearchPaths(std::move(folders), angled, base_system_ + own,
                                                                   llvm::DenseMap<unsigned, unsigned>());
}

std::vector<std::pair<std::string, std::string>> UserHeaders::spelled_paths() const {
  std::vector<std::pair<std::string, std::string>> paths;
  for (std::string spelled = spelled_; !spelled.empty(); spelled.resize(spelled.size() - 2)) {
    paths.emplace_back(directory_ + spelled + "/", directory_ + "/");
    for (const auto& folder : include_dirs_) paths.emplace_back(folder + spelled + "/", folder + "/");
  }
  // Headers of libraries appear as in their #include.
  std::vector<std::pair<std::string, std::string>> of_libraries;
  for (const auto& folder : base_) of_libraries.emplace_back(folder.getName().str() + "/", "");
  std::sort(of_libraries.begin(), of_libraries.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  paths.insert(paths.end(), of_libraries.begin(), of_libraries.end());
  return paths;
}

void UserHeaders::start_cell(const std::string& directory, const std::set<std::string>& again) {
  skipped_.clear();
  std::set<std::string> changed = again;
  for (const auto& [path, header] : headers_)
    if (stamp_of(path) != header.stamp) changed.insert(path);
  for (bool more = !changed.empty(); more;) {  // those that include a changed one, too
    more = false;
    for (const auto& [path, header] : headers_)
      if (changed.contains(path))
        for (const auto& includer : header.includers) more |= changed.insert(includer).second;
  }
  if (changed.empty() && directory == directory_) return;
  directory_ = directory;
  if (!changed.empty()) {
    undefine_guards(changed);
    for (const auto& path : changed) {
      ++versions_->versions[path];
      headers_.erase(path);
    }
    spelled_ += "/.";
  }
  set_search_paths();
}

void UserHeaders::undefine_guards(const std::set<std::string>& changed) {
  auto& preprocessor = instance_.getPreprocessor();
  std::string text;
  for (const auto& path : changed) {
    const auto header = headers_.find(path);
    if (header == headers_.end() || !header->second.entry) continue;
    auto& info = preprocessor.getHeaderSearchInfo().getFileInfo(*header->second.entry);
    if (const auto* macro = info.getControllingMacro(preprocessor.getExternalSource()))
      text += "#undef " + macro->getName().str() + "\n";
  }
  if (text.empty()) return;
  const FileID id = instance_.getSourceManager().createFileID(llvm::MemoryBuffer::getMemBufferCopy(text, "guards"));
  preprocessor.EnterSourceFile(id, nullptr, SourceLocation());
  Token token;
  do preprocessor.Lex(token);
  while (!token.isOneOf(tok::eof, tok::annot_repl_input_end));
}

void UserHeaders::InclusionDirective(SourceLocation place, const Token&, llvm::StringRef, bool, CharSourceRange,
                                     OptionalFileEntryRef file, llvm::StringRef, llvm::StringRef, const Module*, bool,
                                     SrcMgr::CharacteristicKind kind) {
  if (!file || kind != SrcMgr::C_User) return;
  const std::string path = without_dots(file->getName());
  auto& header = headers_[path];
  if (header.stamp.empty()) header.stamp = stamp_of(path);
  header.entry = file;
  const auto& sources = instance_.getSourceManager();
  if (const auto includer = sources.getFileEntryRefForID(sources.getFileID(place)))
    header.includers.insert(without_dots(includer->getName()));
}

void UserHeaders::FileSkipped(const FileEntryRef& file, const Token&, SrcMgr::CharacteristicKind kind) {
  const std::string path = without_dots(file.getName());
  if (kind == SrcMgr::C_User || !headers_.contains(path)) return;
  skipped_.insert(path);
  for (bool more = true; more;) {
    more = false;
    for (const auto& [below, header] : headers_)
      if (std::any_of(header.includers.begin(), header.includers.end(),
                      [&](const auto& includer) { return skipped_.contains(includer); }))
        more |= skipped_.insert(below).second;
  }
}

}  // namespace lockstep::compiler
