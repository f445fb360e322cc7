// Collects what clang reports about a cell, as data and as text for people: with the user's lines, columns and carets,
// and without names that the compiler generated.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compiler/diagnostics/diagnostic_text.h"
#include "compiler/front_end/clang_headers.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// The cell redefines a name: the earlier definition must be hidden for the cell to compile.
struct Clash {
  unsigned item = 0;  // of the cell, before which the earlier definition is to be hidden
  unsigned earlier = 0;  // raw encoding of the earlier declaration's location
  bool operator==(const Clash&) const = default;
};

class CellDiagnostics : public clang::DiagnosticConsumer {
 public:
  /// `cells_dir` holds the texts of cells; `own_headers` is the folder of Lockstep's headers that every cell sees.
  /// Notes that point into these are left out.
  CellDiagnostics(std::string cells_dir, std::string own_headers)
      : cells_dir_(std::move(cells_dir)), own_headers_(std::move(own_headers)) {}

  /// Discards everything about the cell before.
  void start_cell();
  /// The parser calls this before each item.
  void set_item(unsigned item) { item_ = item; }
  /// The raw encodings of locations in this cell are at least that of `place`; those of earlier cells and of the header
  /// are less.
  void set_first_place(clang::SourceLocation place) { first_place_ = place; }

  /// Returns the offset of a token in the text of the cell; none for a token from a macro or a header.
  std::optional<unsigned> place_in_text(clang::SourceLocation place, const clang::SourceManager& sources) const;
  bool is_of_this_cell(clang::SourceLocation place, const clang::SourceManager& sources) const;

  bool failed() const { return errors_ > 0; }
  const std::vector<protocol::Diagnostic>& diagnostics() const { return diagnostics_; }
  /// Returns the text for people.
  DiagnosticText rendered() const;
  const std::vector<Clash>& clashes() const { return clashes_; }
  /// Returns the names that errors are about.
  const std::set<std::string>& names_in_errors() const { return names_; }
  /// Returns the captures that clang rejected, as offsets: defaults at namespace scope, and variables of cells by name.
  const std::vector<unsigned>& refused_captures() const { return refused_captures_; }
  /// Whether a lambda lacks the capture default that it needs.
  bool capture_default_trouble() const { return capture_default_trouble_; }
  /// Whether the code that shows a value does not compile: an error is in Lockstep's headers for that, or in a template
  /// that they use.
  bool show_trouble() const { return show_trouble_; }
  /// Returns the first error, without its place.
  std::string first_error() const;
  clang::SourceLocation first_place() const { return first_place_; }
  /// Whether the cell redefines a specialisation.
  bool specialization_again() const { return specialization_again_; }
  /// Replaces the beginnings of paths, (from, to), in everything reported so far, so that users see the paths they
  /// know.
  void replace(const std::vector<std::pair<std::string, std::string>>& paths);
  /// Adds a message of Lockstep.
  void add(DiagnosticSeverity severity, const std::string& message);

  void BeginSourceFile(const clang::LangOptions& language, const clang::Preprocessor* preprocessor) override {
    language_ = &language;
    preprocessor_ = preprocessor;
  }
  void HandleDiagnostic(clang::DiagnosticsEngine::Level level, const clang::Diagnostic& info) override;

 private:
  std::string draw(clang::DiagnosticsEngine::Level level, llvm::StringRef message, const clang::Diagnostic& info) const;
  void take_note(const clang::Diagnostic& info, const std::string& message, bool here);
  bool is_in_own_header(const clang::Diagnostic& info) const;

  std::string cells_dir_, own_headers_;
  const clang::LangOptions* language_ = nullptr;
  const clang::Preprocessor* preprocessor_ = nullptr;
  std::vector<protocol::Diagnostic> diagnostics_;
  std::vector<MessageGroup> groups_;
  std::string head_message_;  // of the last group
  std::vector<Clash> clashes_;
  std::set<std::string> names_;
  unsigned errors_ = 0;
  unsigned item_ = 0;
  bool last_was_error_here_ = false;
  bool capture_default_trouble_ = false;
  std::vector<unsigned> refused_captures_;
  bool specialization_again_ = false;
  bool show_trouble_ = false;
  bool repeated_ = false;  // the last message was a repetition; so are its notes
  std::set<std::pair<unsigned, std::string>> reported_;
  clang::SourceLocation first_place_;
};

}  // namespace lockstep::compiler
