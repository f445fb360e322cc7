// Reads Jupyter notebooks (nbformat 4) as session scripts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "protocol/read_json.h"
#include "shell/scripts/script.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& name) {
  if (protocol::is_nested_too_deeply(text))
    throw UsageError(name + ": the notebook is nested too deeply: restore it from a copy");
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    const size_t line_begin = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const size_t column = line_begin == std::string_view::npos ? at + 1 : at - line_begin;
    throw UsageError(name + ":" + std::to_string(line) + ": the notebook is broken: its JSON ends or errs at column " +
                     std::to_string(column) +
                     "; restore it from a copy or from .ipynb_checkpoints/, or save it again in Jupyter");
  }
}

struct Kernel {
  std::string name, language;
  bool is_cpp = false, is_python = false;
};

Kernel kernel_of(const json& notebook) {
  const json metadata = notebook.is_object() ? notebook.value("metadata", json::object()) : json();
  if (!metadata.is_object()) return {};
  const json spec = metadata.value("kernelspec", json::object());
  Kernel kernel{.name = protocol::text_at(spec, "name"), .language = protocol::text_at(spec, "language")};
  if (kernel.language.empty())
    kernel.language = protocol::text_at(metadata.value("language_info", json::object()), "name");
  std::string folded = kernel.language;
  std::transform(folded.begin(), folded.end(), folded.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  kernel.is_python = folded.starts_with("python") || (folded.empty() && kernel.name.starts_with("python"));
  kernel.is_cpp = !kernel.is_python &&
                  (kernel.name.starts_with("lockstep") || folded.starts_with("c++") || folded.starts_with("cpp"));
  return kernel;
}

/// A notebook of another kernel holds another language; one that names none is taken as ours.
void check_kernel(const json& notebook, const std::string& name, Language wanted) {
  const auto [kernel, language, is_cpp, is_python] = kernel_of(notebook);
  if ((kernel.empty() && language.empty()) || (wanted == Language::python ? is_python : is_cpp)) return;
  const std::string whose =
      name + ": the notebook belongs to the kernel '" + (kernel.empty() ? language : kernel) + "'";
  if (wanted == Language::python) throw UsageError(whose + ", and these cells have to be Python");
  if (is_python)
    throw UsageError(whose +
                     " (python), and these cells have to be C++; `lockstep run` takes Python cells by "
                     "themselves, and a C++ notebook has the kernel Lockstep (Kernel, Change Kernel)");
  throw UsageError(whose + (language.empty() ? "" : " (" + language + ")") +
                   ", and Lockstep runs C++ and Python; open it in Jupyter and choose a kernel of Lockstep (Kernel, "
                   "Change Kernel), or give a notebook of these languages");
}

std::string source_of(const json& cell, const std::string& where) {
  if (!cell.contains("source")) throw UsageError(where + ": has no \"source\"; save the notebook again in Jupyter");
  const json& source = cell["source"];
  if (source.is_string()) return source.get<std::string>();
  std::string text;
  bool good = source.is_array();
  if (good)
    for (const json& line : source) {
      good = good && line.is_string();
      if (good) text += line.get<std::string>();
    }
  if (!good)
    throw UsageError(where +
                     ": its \"source\" is neither text nor a list of lines; save the notebook again in Jupyter");
  return text;
}

}  // namespace

Language language_of_notebook(std::string_view text) {
  return kernel_of(protocol::read_json(text)).is_python ? Language::python : Language::cpp;
}

std::vector<ScriptCell> parse_notebook(std::string_view text, const std::string& name, Language language) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw UsageError(name + ": is empty; a notebook holds at least one code cell");
  const json notebook = parse_json(text, name);
  if (!notebook.is_object() || !notebook.contains("nbformat") || !notebook["nbformat"].is_number_integer())
    throw UsageError(name +
                     ": is JSON but no notebook (it has no \"nbformat\"); give a notebook that Jupyter has saved");
  if (notebook["nbformat"].get<int>() != 4)
    throw UsageError(
        name + ": has notebook format " + notebook["nbformat"].dump() +
        ", and format 4 is read; open it in Jupyter and save it, or run `jupyter nbconvert --to notebook`");
  if (!notebook.contains("cells") || !notebook["cells"].is_array())
    throw UsageError(name + ": has no list of \"cells\"; restore it from a copy, or save it again in Jupyter");
  check_kernel(notebook, name, language);

  std::vector<ScriptCell> cells;
  int number = 0;
  for (const json& cell : notebook["cells"]) {
    const std::string where = name + ": cell " + std::to_string(++number) + " of the notebook";
    const std::string type = protocol::text_at(cell, "cell_type");
    if (type.empty()) throw UsageError(where + ": has no \"cell_type\"; save the notebook again in Jupyter");
    if (type != "code" && type != "markdown") continue;
    ScriptCell result;
    result.notebook_cell = number - 1;
    result.markdown = type == "markdown";
    result.text = source_of(cell, where);
    const json metadata = cell.value("metadata", json::object());
    result.title = protocol::text_at(metadata, "title");
    if (metadata.is_object() && metadata.contains("tags")) {
      if (!metadata["tags"].is_array())
        throw UsageError(where + ": its tags are not a list; fix them in Jupyter's property inspector");
      for (const json& tag : metadata["tags"]) {
        if (!tag.is_string())
          throw UsageError(where + ": the tag " + tag.dump() +
                           " is not a word; fix it in Jupyter's property inspector");
        result.tags.push_back(parse_tag(tag.get<std::string>(), where));
      }
    }
    if (result.text.find_first_not_of(" \t\r\n") != std::string::npos) cells.push_back(std::move(result));
  }
  if (cells.empty()) throw UsageError(name + ": has no cell with text in it; write one in Jupyter first");
  return cells;
}

}  // namespace lockstep::shell
