// A journal as a terminal shows its session: what was typed, behind its prompts, and what came of it.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "shell/journal/journal_reader.h"
#include "shell/terminal/renderer.h"

namespace lockstep::shell {

/// Says how many records are not there, and why, by a "missing" record.
std::string words_of_missing(const nlohmann::json& record);

/// Draws the records from the number `first` on, until the end or until `over`. Returns whether the session has ended by
/// itself.
bool draw_journal(JournalReader& reader, uint64_t first, Renderer& renderer, const Screen& screen,
                  const std::function<bool()>& over);

/// Returns the same as text for `screen`: its last `most_lines` lines, after a line that says how many came before them.
/// `path` is the folder of the journal of the session `id`, which has the number `last` at least.
std::string journal_end(const std::string& path, const std::string& id, uint64_t first, uint64_t last,
                        const Screen& screen, size_t most_lines);

}  // namespace lockstep::shell
