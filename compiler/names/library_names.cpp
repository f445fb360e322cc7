#include "compiler/names/library_names.h"

#include <llvm/ADT/StringRef.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>

namespace lockstep::compiler {

namespace {

constexpr llvm::StringRef kTitle = "lockstep names ";

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

std::string library_names_text(const std::map<std::string, std::vector<NearCompletion>>& namespaces) {
  std::string directory = kTitle.str() + std::to_string(namespaces.size()) + "\n", lines;
  for (const auto& [space, names] : namespaces) {
    const size_t begin = lines.size();
    for (const auto& [nearness, priority, completion] : names)
      lines += in_one_line(completion.text) + '\t' + in_one_line(completion.kind) + '\t' +
               std::to_string(static_cast<int>(nearness)) + '\t' + std::to_string(priority) + '\t' +
               in_one_line(completion.detail) + '\n';
    directory += std::to_string(begin) + ' ' + std::to_string(lines.size() - begin) + ' ' + space + '\n';
  }
  return directory + lines;
}

LibraryNames::LibraryNames() = default;
LibraryNames::~LibraryNames() = default;

std::unique_ptr<LibraryNames> LibraryNames::read(const std::string& path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file) return nullptr;
  std::unique_ptr<LibraryNames> names(new LibraryNames());
  names->file_ = std::move(*file);
  llvm::StringRef rest = names->file_->getBuffer();
  size_t count = 0;
  auto [title, after] = rest.split('\n');
  if (!title.consume_front(kTitle) || title.getAsInteger(10, count)) return nullptr;
  struct Part {
    size_t begin, size;
    llvm::StringRef space;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < count; ++i) {
    auto [line, more] = after.split('\n');
    after = more;
    Part part;
    if (line.consumeInteger(10, part.begin) || !line.consume_front(" ") || line.consumeInteger(10, part.size) ||
        !line.consume_front(" "))
      return nullptr;
    part.space = line;
    parts.push_back(part);
  }
  for (const Part& part : parts) {
    if (part.begin > after.size() || part.size > after.size() - part.begin) return nullptr;
    names->lines_.emplace(part.space.str(), std::string_view(after.data() + part.begin, part.size));
  }
  return names;
}

bool LibraryNames::has(std::string_view space) const { return lines_.find(space) != lines_.end(); }

void LibraryNames::each(std::string_view space, std::string_view prefix,
                        const std::function<void(const NearCompletion&)>& take) const {
  const auto found = lines_.find(space);
  if (found == lines_.end()) return;
  NearCompletion name;
  for (llvm::StringRef rest = found->second; !rest.empty();) {
    auto [line, more] = rest.split('\n');
    rest = more;
    if (!line.starts_with(prefix)) continue;
    llvm::StringRef fields[5];
    for (size_t i = 0; i < 4; ++i) std::tie(fields[i], line) = line.split('\t');
    fields[4] = line;
    int nearness = 0;
    if (fields[2].getAsInteger(10, nearness) || fields[3].getAsInteger(10, name.priority)) continue;
    name.nearness = static_cast<Nearness>(nearness);
    name.completion = {fields[0].str(), fields[1].str(), fields[4].str()};
    take(name);
  }
}

}  // namespace lockstep::compiler
