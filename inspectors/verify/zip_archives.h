// The zip archives of a file: one in what torch.save writes, several behind one another in the files of
// torch.distributed.checkpoint (.distcp), which has one for each tensor and value. A zip reader looks for the last
// one's end alone, and takes the file for less than it is.
#pragma once
#include <caffe2/serialize/read_adapter_interface.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "inspectors/verify/mapped_file.h"

namespace lockstep::inspect {

struct ZipArchive {
  uint64_t begin = 0, size = 0;  // bytes of the file
};

/// The archives that `file` is made of, in order: every byte of it belongs to one. Throws std::runtime_error that says
/// from where on bytes belong to none (APPNOTE of PKWARE, 4.3.14 to 4.3.16: an archive's end says where it begins).
std::vector<ZipArchive> zip_archives(std::string_view file);

/// One of them as LibTorch's readers take it.
class ZipArchiveReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  ZipArchiveReader(std::shared_ptr<const MappedFile> file, const ZipArchive& archive)
      : file_(std::move(file)), archive_(archive) {}
  size_t size() const override { return archive_.size; }
  size_t read(uint64_t position, void* into, size_t count, const char* what = "") const override;

 private:
  std::shared_ptr<const MappedFile> file_;
  ZipArchive archive_;
};

}  // namespace lockstep::inspect
