// Reads files of Python's torch.save: a zip archive with a pickle and a record for each storage. Tensors are views of
// the mapped file, so they are read once and not copied.
#pragma once
#include <memory>
#include <string>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/subject/subject.h"
#include "inspectors/verify/mapped_file.h"
#include "inspectors/verify/zip_archives.h"

namespace lockstep::inspect {

/// Adds the tensors and values of an archive of `file` to `subject`. Names are those in dictionaries, lists and
/// modules, after `name`: `model.fc1.weight`. Nothing is left out: other parts of the archive become records or unseen
/// items. The file must not be written while the items are used. What the archive unpacks to, and what its values take,
/// is taken from `limit`. Throws std::exception with the reason for a file that can't be read.
void add_python_archive(Subject& subject, const std::string& name, const std::shared_ptr<MappedFile>& file,
                        const ZipArchive& archive, ReadingLimit& limit);

}  // namespace lockstep::inspect
