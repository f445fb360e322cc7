// What Python's torch.save has written: a zip archive with a pickle and a record for each storage. Tensors are views of
// the mapped file, so that what is compared is read once and held nowhere.
#pragma once
#include <memory>
#include <string>

#include "inspectors/subject/subject.h"
#include "inspectors/verify/mapped_file.h"
#include "inspectors/verify/zip_archives.h"

namespace lockstep::inspect {

/// Adds the tensors and values of an archive of `file` to `subject`, under the names that they have in dictionaries,
/// lists and modules: `model.fc1.weight`, behind `name`. Nothing of the archive is left out: what is neither becomes a
/// record of bytes, or something unseen. The file must not be written while these are used. Throws std::exception that
/// says what is wrong with it.
void add_python_archive(Subject& subject, const std::string& name, const std::shared_ptr<MappedFile>& file,
                        const ZipArchive& archive);

}  // namespace lockstep::inspect
