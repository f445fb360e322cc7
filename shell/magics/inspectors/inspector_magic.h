// What magics that turn into a call of an inspector share: which ranks run the call, its options, and how values are
// spelt in C++ and in Python.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shell/session/session_core.h"

namespace lockstep::shell {

/// A row of inspectors/options/, of which an array is made by including the table of the inspector.
struct InspectorOption {
  std::string_view name, type, initial, value, range, help;
};
#define LOCKSTEP_OPTION_ROW(type, name, initial, value, range, help) {#name, #type, #initial, value, range, help},
using InspectorOptions = std::span<const InspectorOption>;

/// Returns what a magic takes: `words`, and an option for each row: `--batch-size N`.
MagicDescription with_options(MagicDescription words, InspectorOptions options);
/// The same, and `--ranks SPEC`.
MagicDescription with_options_and_ranks(MagicDescription words, InspectorOptions options = {});

/// The options that were given, as C++ sets them: ".batch_size(4)". Throws UsageError for values out of range.
std::string cxx_options(const MagicArguments& given, InspectorOptions options);
/// Returns them as arguments of Python's function: ", batch_size=4".
std::string python_options(const MagicArguments& given, InspectorOptions options);
/// Returns ".ranks(…)" where --ranks was given.
std::string cxx_ranks_option(const MagicArguments& given, const CellSettings& settings);

/// Returns the settings of such a cell: all live ranks, or those of --ranks, also after %rank. Starts the session where
/// it has not been.
CellSettings inspector_settings(MagicCall& call, const std::optional<std::string>& spec = {});

/// Runs the call. With `shows`, its value is shown as a cell's last expression is.
CellOutcome run_inspector(MagicCall& call, const std::string& code, const CellSettings& settings, bool shows = false);

/// Returns the path of a file that the ranks write or read: relative to their directory; `~` is replaced. Whether it is there
/// is not looked at.
std::string path_of_ranks(const SessionCore& session, const std::string& word);

/// A string literal, of C++ and of Python.
std::string quoted(const std::string& text);
/// `lockstep::RankSet{0, 2}`, of C++.
std::string cxx_ranks(const RankSet& ranks);

}  // namespace lockstep::shell
