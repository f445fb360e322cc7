#include "compiler/diagnostics.h"

#include <clang/Basic/DiagnosticSema.h>

namespace lockstep::compiler {

using namespace clang;

namespace {

const char* severity_name(DiagnosticsEngine::Level level) {
  switch (level) {
    case DiagnosticsEngine::Warning:
      return "warning";
    case DiagnosticsEngine::Note:
    case DiagnosticsEngine::Remark:
      return "note";
    default:
      return "error";
  }
}

bool is_specialization(const NamedDecl* decl) {
  if (llvm::isa<ClassTemplateSpecializationDecl, VarTemplateSpecializationDecl>(decl)) return true;
  const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
  return function && function->isTemplateInstantiation();
}

/// DIR/cells/cell_7.cpp:3:5 is "cell 7:3:5" for people.
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

/// Tells by way of which headers a place was reached, as Clang does, where a cell included them: how the precompiled header came
/// by its own is of no use to anybody.
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
  text_.clear();
  clashes_.clear();
  names_.clear();
  errors_ = 0;
  item_ = 0;
  last_was_error_here_ = false;
  capture_default_trouble_ = false;
  refused_captures_.clear();
  specialization_again_ = false;
  repeated_ = false;
  said_.clear();
}

std::string CellDiagnostics::rendered() const { return name_cells(text_, cells_dir_); }

void CellDiagnostics::replace(const std::vector<std::pair<std::string, std::string>>& paths) {
  for (const auto& [from, to] : paths) {
    for (size_t at = text_.find(from); at != std::string::npos; at = text_.find(from, at + to.size()))
      text_.replace(at, from.size(), to);
    for (auto& diagnostic : diagnostics_)
      if (diagnostic.file.starts_with(from)) diagnostic.file.replace(0, from.size(), to);
  }
}

void CellDiagnostics::add(const std::string& severity, const std::string& message) {
  if (severity == "error") ++errors_;
  diagnostics_.push_back({severity, 0, 0, "", message});
  text_ += severity + ": " + message + "\n";
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
  const bool error = level >= DiagnosticsEngine::Error;
  if (level != DiagnosticsEngine::Note) {
    // Clang tells some things twice: when it looks ahead, and when it comes to the place.
    const auto said = std::pair(info.getLocation().getRawEncoding(), std::string(message));
    repeated_ = info.getLocation().isValid() && !said_.insert(said).second;
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
  diagnostic.severity = severity_name(level);
  diagnostic.message = std::string(message);
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
    // An error in this cell whose note points at something earlier: an earlier definition is in the way.
    const bool here = is_of_this_cell(info.getLocation(), sources);
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

  llvm::raw_string_ostream stream(text_);
  IntrusiveRefCntPtr<DiagnosticOptions> options(new DiagnosticOptions());
  options->ShowOptionNames = false;
  if (info.hasSourceManager()) {
    CellText text(stream, *language_, options.get());
    text.emitDiagnostic(FullSourceLoc(info.getLocation(), info.getSourceManager()), level, message, info.getRanges(),
                        info.getFixItHints(), &info);
  } else {
    stream << diagnostics_.back().severity << ": " << message << '\n';
  }
}

}  // namespace lockstep::compiler
