// What Python's torch.save has written: a zip file with a pickle and a record for each storage. Tensors are views of the
// mapped file, so that what is compared is read once and held nowhere.
#pragma once
#include <string>

#include "inspectors/subject.h"

namespace lockstep::inspect {

/// Adds the tensors and values of the file at `path` to `subject`, under the names that they have in dictionaries, lists and
/// modules: `model.fc1.weight`. The file must not be written while these are used. Throws std::exception that says what is
/// wrong with it.
void add_python_file(Subject& subject, const std::string& path);

}  // namespace lockstep::inspect
