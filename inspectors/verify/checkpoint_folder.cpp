#include "inspectors/verify/checkpoint_folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>

#include "inspectors/verify/checkpoint_metadata.h"
#include "inspectors/verify/mapped_file.h"
#include "inspectors/verify/python_file.h"
#include "inspectors/verify/zip_archives.h"

namespace lockstep::inspect {
namespace {

namespace fs = std::filesystem;

std::string list_text(const std::vector<int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

/// Returns the elements of a shard or tensor. Throws for sizes that no tensor has.
int64_t elements_of(const std::vector<int64_t>& size) {
  int64_t count = 1;
  for (const int64_t each : size)
    if (each < 0 || __builtin_mul_overflow(count, each, &count))
      throw std::runtime_error("its metadata have a size that no tensor has: " + list_text(size));
  return count;
}

bool within(const CheckpointChunk& chunk, const std::vector<int64_t>& size) {
  if (chunk.offset.size() != size.size() || chunk.size.size() != size.size()) return false;
  for (size_t d = 0; d < size.size(); ++d)
    if (chunk.offset[d] < 0 || chunk.size[d] < 0 || chunk.offset[d] > size[d] - chunk.size[d]) return false;
  return true;
}

bool overlap(const CheckpointChunk& a, const CheckpointChunk& b) {
  for (size_t d = 0; d < a.size.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.size[d] || b.offset[d] >= a.offset[d] + a.size[d]) return false;
  return true;
}

class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& folder, ReadingLimit& limit)
      : folder_(folder), limit_(limit), metadata_(read_checkpoint_metadata((folder_ / ".metadata").string(), limit)) {
    for (const CheckpointPart& part : metadata_.parts) parts_[{part.name, part.offset}] = &part;
    refuse_shared_bytes();
  }

  void add_to(Subject& subject) {
    for (const CheckpointEntry& entry : metadata_.entries) {
      if (entry.is_tensor)
        add_tensor(subject, entry);
      else
        add_part(subject, entry.name, part_of(entry.name, {}));
    }
    for (const auto& [key, part] : parts_)
      if (!used_.contains(part))
        throw std::runtime_error(fmt::format("its storage_data have {}{}, which its state_dict_metadata lack",
                                             key.first, key.second.empty() ? "" : list_text(key.second)));
    add_bytes_of_none(subject);
  }

 private:
  /// Each part is written by itself. Metadata that name the same bytes many times would stand for more than there is.
  void refuse_shared_bytes() const {
    std::vector<const CheckpointPart*> parts;
    for (const CheckpointPart& each : metadata_.parts)
      if (each.length > 0) parts.push_back(&each);
    std::ranges::sort(parts, {}, [](const CheckpointPart* each) { return std::tie(each->file, each->begin); });
    const auto shared = std::ranges::adjacent_find(parts, [](const CheckpointPart* a, const CheckpointPart* b) {
      return a->file == b->file && b->begin - a->begin < a->length;
    });
    if (shared != parts.end())
      throw std::runtime_error(fmt::format("its metadata name the same bytes of {} for {} and for {}", (*shared)->file,
                                           (*shared)->name, shared[1]->name));
  }

  const CheckpointPart& part_of(const std::string& name, const std::vector<int64_t>& offset) {
    const auto found = parts_.find({name, offset});
    if (found == parts_.end())
      throw std::runtime_error(fmt::format("the {} of {} is in none of its files",
                                           offset.empty() ? "value" : "shard at " + list_text(offset), name));
    used_.insert(found->second);
    return *found->second;
  }

  std::shared_ptr<MappedFile> file(const std::string& name) {
    std::shared_ptr<MappedFile>& known = files_[name];
    if (known) return known;
    if (!fs::exists(folder_ / name))
      throw std::runtime_error(fmt::format("its file {} is missing: was the folder of every rank copied?", name));
    try {
      known = std::make_shared<MappedFile>((folder_ / name).string());
      limit_.add(kReadingsOfAFile * known->bytes().size());
      return known;
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("its file {}: {}", name, error.what()));
    }
  }

  /// Adds what torch.save wrote for one shard or value.
  void add_part(Subject& subject, const std::string& name, const CheckpointPart& part) {
    const std::shared_ptr<MappedFile> in = file(part.file);
    try {
      const std::string_view bytes(in->at(part.begin, part.length), part.length);
      if (!bytes.starts_with("PK\3\4"))
        throw std::runtime_error("its bytes are in another format than torch.save's, which is not supported");
      covered_[part.file].emplace_back(part.begin, part.begin + part.length);
      std::vector<ZipArchive> archives = zip_archives(bytes);
      if (archives.size() > 1) throw std::runtime_error("its bytes are more than one archive");
      archives.front().begin = part.begin;
      add_python_archive(subject, name, in, archives.front(), limit_);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{} in its file {}: {}", name, part.file, error.what()));
    }
  }

  at::Tensor shard(Subject& subject, const std::string& name, const CheckpointChunk& chunk) {
    Subject read;
    add_part(read, name, part_of(name, chunk.offset));
    for (Item& each : read.unseen) subject.unseen.push_back(std::move(each));
    const at::Tensor tensor = read.items.size() == 1 ? read.items[0].tensor : at::Tensor();
    if (!tensor.defined() || tensor.sizes() != at::IntArrayRef(chunk.size))
      throw std::runtime_error(fmt::format("the shard at {} of {} is not of the size {} that its metadata say",
                                           list_text(chunk.offset), name, list_text(chunk.size)));
    // A tensor with repeated elements could stand for more memory than there is.
    if (static_cast<uint64_t>(tensor.nbytes()) > part_of(name, chunk.offset).length)
      throw std::runtime_error(
          fmt::format("the shard at {} of {} has more elements than bytes in the file", list_text(chunk.offset), name));
    return tensor;
  }

  void refuse_shared_elements(const CheckpointEntry& entry) {
    std::vector<const CheckpointChunk*> chunks;  // by their begin in the first dimension, along which most are cut
    for (const CheckpointChunk& each : entry.chunks) chunks.push_back(&each);
    if (!entry.size.empty()) std::ranges::sort(chunks, {}, [](const auto* each) { return each->offset[0]; });
    for (size_t i = 0; i < chunks.size(); ++i)
      for (size_t j = i + 1; j < chunks.size(); ++j) {
        if (!entry.size.empty() && chunks[j]->offset[0] >= chunks[i]->offset[0] + chunks[i]->size[0]) break;
        limit_.take(1);
        if (overlap(*chunks[i], *chunks[j]))
          throw std::runtime_error(fmt::format("two shards of {} have the same elements", entry.name));
      }
  }

  void add_tensor(Subject& subject, const CheckpointEntry& entry) {
    const int64_t elements = elements_of(entry.size);
    int64_t found = 0;
    for (size_t i = 0; i < entry.chunks.size(); ++i) {
      if (!within(entry.chunks[i], entry.size))
        throw std::runtime_error(
            fmt::format("a shard of {} reaches beyond its size {}", entry.name, list_text(entry.size)));
      found += elements_of(entry.chunks[i].size);
    }
    if (elements > 0) refuse_shared_elements(entry);
    if (found != elements || entry.chunks.empty())
      throw std::runtime_error(
          fmt::format("{} of {} elements of {} are in no shard", elements - found, elements, entry.name));
    std::vector<at::Tensor> shards;
    for (const CheckpointChunk& chunk : entry.chunks) shards.push_back(shard(subject, entry.name, chunk));
    at::Tensor tensor = shards.front();
    if (shards.size() > 1) {
      limit_.take(static_cast<uint64_t>(elements) * tensor.element_size());
      tensor = at::empty(entry.size, shards.front().options());
      for (size_t i = 0; i < shards.size(); ++i) {
        if (shards[i].scalar_type() != tensor.scalar_type())
          throw std::runtime_error(fmt::format("shards of {} have different dtypes", entry.name));
        at::Tensor part = tensor;
        for (size_t d = 0; d < entry.size.size(); ++d)
          part = part.narrow(static_cast<int64_t>(d), entry.chunks[i].offset[d], entry.chunks[i].size[d]);
        part.copy_(shards[i]);
      }
    }
    subject.items.push_back({.name = entry.name, .kind = FindingKind::tensor, .tensor = tensor, .value = {}});
  }

  /// Adds bytes between the shards, and files that the metadata do not name.
  void add_bytes_of_none(Subject& subject) {
    for (auto& [name, ranges] : covered_) {
      const std::shared_ptr<MappedFile> in = file(name);
      std::sort(ranges.begin(), ranges.end());
      uint64_t end = 0;
      for (const auto& [from, to] : ranges) {
        if (from > end) add_unseen(subject, fmt::format("{} from byte {} on", name, end), in, end, from - end);
        end = std::max(end, to);
      }
      if (end < in->bytes().size())
        add_unseen(subject, fmt::format("{} from byte {} on", name, end), in, end, in->bytes().size() - end);
    }
    for (const fs::directory_entry& each : fs::directory_iterator(folder_)) {
      const std::string name = each.path().filename().string();
      if (!each.is_regular_file() || name == ".metadata" || covered_.contains(name) || each.file_size() == 0) continue;
      const auto in = std::make_shared<MappedFile>(each.path().string());
      add_unseen(subject, "file " + name, in, 0, in->bytes().size());
    }
  }

  static void add_unseen(Subject& subject, std::string name, const std::shared_ptr<MappedFile>& in, uint64_t begin,
                         uint64_t length) {
    const at::Tensor bytes =
        at::from_blob(in->at(begin, length), {static_cast<int64_t>(length)}, [in](void*) {}, at::kByte);
    subject.unseen.push_back({.name = std::move(name), .kind = FindingKind::storage, .tensor = bytes, .value = {}});
  }

  const fs::path folder_;
  ReadingLimit& limit_;
  const CheckpointMetadata metadata_;
  std::map<std::pair<std::string, std::vector<int64_t>>, const CheckpointPart*> parts_;
  std::set<const CheckpointPart*> used_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;
  std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>> covered_;  // begin and end
};

}  // namespace

void add_checkpoint_folder(Subject& subject, const std::string& folder, ReadingLimit& limit) {
  CheckpointFolder(folder, limit).add_to(subject);
}

}  // namespace lockstep::inspect
