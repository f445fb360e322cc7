// What `lockstep sessions` and `lockstep run --journal` make of a journal: text as a terminal has shown it, JSON lines,
// scripts, a notebook with outputs, and cells to run again.
#pragma once
#include <string>
#include <vector>

#include "shell/journal/journal_content.h"
#include "shell/journal/journal_folder.h"
#include "shell/scripts/script.h"

namespace lockstep::shell {

/// Prints what was typed and what came.
void print_journal(const JournalInfo& journal);

/// Prints its records as JSON lines.
void print_journal_lines(const JournalInfo& journal);

/// Writes the cells as a session script (.cpp, .py), those that failed or only look left out, or all cells with their
/// outputs as a notebook (.ipynb). Returns a sentence that says so. Throws UsageError.
std::string export_journal(const JournalInfo& journal, const std::string& path, bool force);

/// Says what the journal of a session that has ended lacks; empty where that is nothing.
std::string gaps_of(const JournalInfo& journal, const JournalContent& content);

/// Cells to run again, and those that are not, in words: "cell 7, which was interrupted".
struct CellsAgain {
  std::vector<ScriptCell> cells;
  std::vector<std::string> left_out;
};

/// They have their numbers. A cell that has failed has the tag kFailedBefore, which nobody can write, with its status: it
/// may fail again.
CellsAgain cells_again(const JournalContent& content);

}  // namespace lockstep::shell
