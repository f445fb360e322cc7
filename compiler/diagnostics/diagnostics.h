// What clang has to say about a cell, as data and as people read it: the user's lines, columns and carets, and no name
// that the compiler made up.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compiler/diagnostics/diagnostic_text.h"
#include "compiler/front_end/clang_headers.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// A name was defined that is defined already: the earlier definition has to step back for the cell to compile.
struct Clash {
  unsigned item = 0;          // of the cell: before which item the earlier definition is to be hidden
  unsigned earlier = 0;       // raw encoding of the earlier declaration's place
  bool operator==(const Clash&) const = default;
};

class CellDiagnostics : public clang::DiagnosticConsumer {
 public:
  /// `cells_dir` holds the texts of cells; `own_headers` is the folder of those headers that only declare what every
  /// cell sees, which no user has to know.
  CellDiagnostics(std::string cells_dir, std::string own_headers)
      : cells_dir_(std::move(cells_dir)), own_headers_(std::move(own_headers)) {}

  /// Forgets everything. `item` is updated by whoever parses; places in `first` .. are the cell's own.
  void start_cell();
  void set_item(unsigned item) { item_ = item; }
  /// Raw encodings of places in this cell are at least this; those of earlier cells and of the header are not.
  void set_first_place(clang::SourceLocation place) { first_place_ = place; }

  /// The offset of a token in the text of the cell; none for what a macro or a header brought.
  std::optional<unsigned> place_in_text(clang::SourceLocation place, const clang::SourceManager& sources) const;
  bool is_of_this_cell(clang::SourceLocation place, const clang::SourceManager& sources) const;

  bool failed() const { return errors_ > 0; }
  const std::vector<protocol::Diagnostic>& diagnostics() const { return diagnostics_; }
  /// As people read them.
  DiagnosticText rendered() const;
  const std::vector<Clash>& clashes() const { return clashes_; }
  /// Names that errors are about.
  const std::set<std::string>& names_in_errors() const { return names_; }
  /// Captures, as places in the text, that can't be: defaults at namespace scope, and variables of cells by name.
  const std::vector<unsigned>& refused_captures() const { return refused_captures_; }
  /// A lambda lacks the capture default that it needs.
  bool capture_default_trouble() const { return capture_default_trouble_; }
  /// What does not compile is the code that shows a value: an error is in Lockstep's headers for that, or came about
  /// from there.
  bool show_trouble() const { return show_trouble_; }
  /// The first error, without its place.
  std::string first_error() const;
  clang::SourceLocation first_place() const { return first_place_; }
  /// A specialisation was defined that is defined already.
  bool specialization_again() const { return specialization_again_; }
  /// Shows paths as people know them: (from, to), in all that was said so far.
  void replace(const std::vector<std::pair<std::string, std::string>>& paths);
  /// Says something that clang does not know.
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
  bool repeated_ = false;  // the last one had been said before; so have its notes
  std::set<std::pair<unsigned, std::string>> said_;
  clang::SourceLocation first_place_;
};

}  // namespace lockstep::compiler
