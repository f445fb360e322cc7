// Finds the zip archives of a file. Files of torch.save have one; files of torch.distributed.checkpoint (.distcp) have
// one for each tensor and value, one after the other. Other zip readers find only the last archive.
#pragma once
#include <caffe2/serialize/read_adapter_interface.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/verify/mapped_file.h"

namespace lockstep::inspect {

struct ZipArchive {
  uint64_t begin = 0, size = 0;  // bytes of the file
  uint64_t unpacked = 0;  // bytes of all its records, by its directory
};

/// Returns the archives of `file`, in order; every byte belongs to one. Otherwise throws std::runtime_error with the
/// offset of bytes of none. Format: APPNOTE of PKWARE, 4.3.12 to 4.3.16 (the end of an archive has its begin).
std::vector<ZipArchive> zip_archives(std::string_view file);

/// Opens one archive for LibTorch's readers, which unpack what they read: it is taken from `limit` before.
class ZipArchiveReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  ZipArchiveReader(std::shared_ptr<const MappedFile> file, const ZipArchive& archive, ReadingLimit& limit)
      : file_(std::move(file)), archive_(archive) {
    limit.take(archive.unpacked);
  }
  size_t size() const override { return archive_.size; }
  size_t read(uint64_t position, void* into, size_t count, const char* what = "") const override;

 private:
  std::shared_ptr<const MappedFile> file_;
  ZipArchive archive_;
};

}  // namespace lockstep::inspect
