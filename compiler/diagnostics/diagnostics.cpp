#include "compiler/diagnostics/diagnostics.h"

#include <clang/Basic/DiagnosticSema.h>

#include <algorithm>
#include <cstring>

#include "compiler/diagnostics/header_hint.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

DiagnosticSeverity severity_of(DiagnosticsEngine::Level level) {
  switch (level) {
    case DiagnosticsEngine::Warning:
      return DiagnosticSeverity::warning;
    case DiagnosticsEngine::Note:
    case DiagnosticsEngine::Remark:
      return DiagnosticSeverity::note;
    default:
      return DiagnosticSeverity::error;
  }
}

bool is_specialization(const NamedDecl* decl) {
  if (llvm::isa<ClassTemplateSpecializationDecl, VarTemplateSpecializationDecl>(decl)) return true;
  const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
  return function && function->isTemplateInstantiation();
}

/// Replaces DIR/cells/cell_7.cpp:3:5 by "cell 7:3:5".
std::string name_cells(std::string text, const std::string& cells_dir) {
  const std::string prefix = cells_dir + "/cell_";
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    size_t end = at + prefix.size();
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    const std::string number = text.substr(at + prefix.size(), end - at - prefix.size());
    if (text.compare(end, 4, ".cpp") == 0) end += 4;
    const std::string name = "cell " + number;
    text.replace(at, end - at, name);
    at += name.size();
  }
  return text;
}

/// Removes the function as which a statement is compiled, since its author does not know it.
std::string without_the_function(std::string message) {
  constexpr std::string_view kName = "'cell_";
  const size_t begin = message.find(kName);
  if (begin == std::string::npos) return message;
  size_t end = begin + kName.size();
  while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end]))) ++end;
  if (end == begin + kName.size() || end == message.size() || message[end] != '\'') return message;
  if (message.find("should not return a value") != std::string::npos)
    return "a cell returns no value; to show one, write it as the last expression, without `return` and `;`";
  return message.replace(begin, end + 1 - begin, "of this cell");
}

bool shows_values(llvm::StringRef file) {
  return file.ends_with("worker/cell/show.h") || file.ends_with("worker/cell/show_kinds.h") ||
         file.ends_with("worker/cell/show_fields.h") || file.ends_with("worker/cell/kept_values.h");
}

/// Prints the chain of includes before a message, as Clang does, but only for headers that a cell includes: the
/// includes of the precompiled header help nobody.
class CellText : public TextDiagnostic {
 public:
  using TextDiagnostic::TextDiagnostic;

 protected:
  void emitIncludeLocation(FullSourceLoc location, PresumedLoc place) override {
    const SourceManager& sources = location.getManager();
    if (sources.isLoadedSourceLocation(location) || sources.getFileID(location) == sources.getMainFileID()) return;
    TextDiagnostic::emitIncludeLocation(location, place);
  }
};

}  // namespace

void CellDiagnostics::start_cell() {
  diagnostics_.clear();
  groups_.clear();
  head_message_.clear();
  clashes_.clear();
  names_.clear();
  errors_ = 0;
  item_ = 0;
  last_was_error_here_ = false;
  capture_default_trouble_ = false;
  refused_captures_.clear();
  specialization_again_ = false;
  show_trouble_ = false;
  repeated_ = false;
  reported_.clear();
}

DiagnosticText CellDiagnostics::rendered() const {
  auto groups = groups_;
  for (auto& group : groups) {
    for (std::string* text : {&group.text, &group.text_here}) *text = name_cells(std::move(*text), cells_dir_);
    for (auto& note : group.notes) note.text = name_cells(std::move(note.text), cells_dir_);
  }
  return compose(groups);
}

std::string CellDiagnostics::first_error() const {
  for (const auto& diagnostic : diagnostics_)
    if (diagnostic.severity == DiagnosticSeverity::error) return diagnostic.message;
  return "";
}

void CellDiagnostics::replace(const std::vector<std::pair<std::string, std::string>>& paths) {
  for (const auto& [from, to] : paths) {
    const auto replace_in = [&](std::string& text) {
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
        if (at > 0 && !std::strchr(" \n'\"<(", text[at - 1])) {  // within a longer path
          ++at;
          continue;
        }
        text.replace(at, from.size(), to);
        at += to.size();
      }
    };
    for (auto& group : groups_) {
      replace_in(group.text);
      replace_in(group.text_here);
      for (auto& note : group.notes) replace_in(note.text);
    }
    for (auto& diagnostic : diagnostics_)
      if (diagnostic.file.starts_with(from)) diagnostic.file.replace(0, from.size(), to);
  }
}

void CellDiagnostics::add(DiagnosticSeverity severity, const std::string& message) {
  if (severity == DiagnosticSeverity::error) ++errors_;
  diagnostics_.push_back({severity, 0, 0, "", message});
  const std::string text = std::string(to_string(severity)) + ": " + message + "\n";
  if (severity == DiagnosticSeverity::note && !groups_.empty())
    groups_.back().notes.push_back({message, text, true});
  else
    groups_.push_back({.is_error = severity == DiagnosticSeverity::error, .is_here = true, .text = text});
}

std::optional<unsigned> CellDiagnostics::place_in_text(SourceLocation place, const SourceManager& sources) const {
  if (!place.isFileID() || !is_of_this_cell(place, sources)) return std::nullopt;
  const auto [file, offset] = sources.getDecomposedLoc(place);
  if (sources.getIncludeLoc(file).isValid()) return std::nullopt;
  return offset;
}

bool CellDiagnostics::is_of_this_cell(SourceLocation place, const SourceManager& sources) const {
  if (place.isInvalid() || first_place_.isInvalid()) return false;
  const SourceLocation file = sources.getExpansionLoc(place);
  return !sources.isLoadedSourceLocation(file) && file.getRawEncoding() >= first_place_.getRawEncoding();
}

void CellDiagnostics::HandleDiagnostic(DiagnosticsEngine::Level level, const Diagnostic& info) {
  DiagnosticConsumer::HandleDiagnostic(level, info);
  if (level == DiagnosticsEngine::Ignored) return;
  llvm::SmallString<256> message;
  info.FormatDiagnostic(message);
  message = without_the_function(std::string(message));
  const bool error = level >= DiagnosticsEngine::Error;
  if (level != DiagnosticsEngine::Note) {
    // Clang reports some errors twice: when it looks ahead, and when it parses the text.
    const auto report = std::pair(info.getLocation().getRawEncoding(), std::string(message));
    repeated_ = info.getLocation().isValid() && !reported_.insert(report).second;
  }
  if (repeated_) return;
  if (error) ++errors_;
  for (unsigned i = 0; error && i < info.getNumArgs(); ++i) {
    if (info.getArgKind(i) == DiagnosticsEngine::ak_identifierinfo) {
      if (const auto* identifier = info.getArgIdentifier(i)) names_.insert(identifier->getName().str());
    } else if (info.getArgKind(i) == DiagnosticsEngine::ak_declarationname) {
      names_.insert(DeclarationName::getFromOpaqueInteger(info.getRawArg(i)).getAsString());
    }
  }

  protocol::Diagnostic diagnostic;
  diagnostic.severity = severity_of(level);
  diagnostic.message = std::string(message);
  bool here = false;
  if (info.hasSourceManager() && info.getLocation().isValid()) {
    const auto& sources = info.getSourceManager();
    const PresumedLoc place = sources.getPresumedLoc(info.getLocation());
    if (place.isValid()) {
      diagnostic.line = static_cast<int>(place.getLine());
      diagnostic.column = static_cast<int>(place.getColumn());
      diagnostic.file = place.getFilename();
      if (is_of_this_cell(info.getLocation(), sources) && diagnostic.file.starts_with(cells_dir_))
        diagnostic.file.clear();
    }
    if (place.isValid() && errors_ > 0) show_trouble_ |= shows_values(place.getFilename());
    // An error in this cell with a note on an earlier definition: the cell redefines a name.
    here = is_of_this_cell(info.getLocation(), sources);
    if (level == DiagnosticsEngine::Note && last_was_error_here_ && !here) {
      const unsigned id = info.getID();
      if (id == diag::note_previous_definition || id == diag::note_previous_declaration ||
          id == diag::note_previous_use || id == diag::note_previous_implicit_declaration ||
          id == diag::note_previous_namespace_alias || id == diag::note_previous_template_specialization)
        clashes_.push_back({item_, info.getLocation().getRawEncoding()});
    }
    if (level != DiagnosticsEngine::Note) last_was_error_here_ = error && here;
  }
  if (info.getID() == diag::err_lambda_impcap) capture_default_trouble_ = true;
  if (info.getID() == diag::err_capture_default_non_local || info.getID() == diag::err_capture_non_automatic_variable)
    if (const auto place = place_in_text(info.getLocation(), info.getSourceManager()))
      refused_captures_.push_back(*place);
  if (info.getID() == diag::err_redefinition && info.getNumArgs() > 0 &&
      info.getArgKind(0) == DiagnosticsEngine::ak_nameddecl)
    specialization_again_ |= is_specialization(reinterpret_cast<const NamedDecl*>(info.getRawArg(0)));
  diagnostics_.push_back(std::move(diagnostic));

  if (level == DiagnosticsEngine::Note) {
    take_note(info, std::string(message), here);
    return;
  }
  groups_.push_back({.is_error = error, .is_here = here, .text = draw(level, message, info)});
  head_message_ = std::string(message);
  if (!error || !preprocessor_) return;
  if (const auto hint = header_hint(info, *preprocessor_))
    groups_.back().notes.push_back({*hint, "note: " + *hint + "\n", true});
}

void CellDiagnostics::take_note(const Diagnostic& info, const std::string& message, bool here) {
  if (groups_.empty() || is_in_own_header(info)) return;
  MessageGroup& group = groups_.back();
  // This line of the cell is the innermost that led to the error: clang's notes on instantiations end with "here".
  if (group.is_error && !group.is_here && group.text_here.empty() && here &&
      llvm::StringRef(message).ends_with("here")) {
    group.text_here = draw(DiagnosticsEngine::Error, head_message_, info);
    const PresumedLoc place = info.getSourceManager().getPresumedLoc(info.getLocation());
    protocol::Diagnostic lifted{DiagnosticSeverity::error, static_cast<int>(place.getLine()),
                                static_cast<int>(place.getColumn()), "", head_message_};
    const auto head = std::find_if(diagnostics_.rbegin(), diagnostics_.rend(),
                                   [](const auto& each) { return each.severity != DiagnosticSeverity::note; });
    if (head != diagnostics_.rend()) {
      head->severity = DiagnosticSeverity::note;
      diagnostics_.insert(std::prev(head.base()), std::move(lifted));
    }
    // The text that was rendered as the error becomes a note that shows where the error is.
    const size_t at = group.text.find(": error: ");
    if (at != std::string::npos) group.text.replace(at, 9, ": note: here: ");
  }
  group.notes.push_back({message, draw(DiagnosticsEngine::Note, message, info), here});
}

bool CellDiagnostics::is_in_own_header(const Diagnostic& info) const {
  if (!info.hasSourceManager() || info.getLocation().isInvalid()) return false;
  const PresumedLoc place = info.getSourceManager().getPresumedLoc(info.getLocation());
  return place.isValid() && llvm::StringRef(place.getFilename()).starts_with(own_headers_);
}

std::string CellDiagnostics::draw(DiagnosticsEngine::Level level, llvm::StringRef message,
                                  const Diagnostic& info) const {
  std::string drawn;
  llvm::raw_string_ostream stream(drawn);
  IntrusiveRefCntPtr<DiagnosticOptions> options(new DiagnosticOptions());
  options->ShowOptionNames = false;
  if (info.hasSourceManager()) {
    CellText text(stream, *language_, options.get());
    text.emitDiagnostic(FullSourceLoc(info.getLocation(), info.getSourceManager()), level, message, info.getRanges(),
                        info.getFixItHints(), &info);
  } else {
    stream << to_string(severity_of(level)) << ": " << message << '\n';
  }
  return drawn;
}

}  // namespace lockstep::compiler
