#include "shell/built/built_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }

/// Returns every identifier in the text, in comments and strings as well.
std::set<std::string, std::less<>> words_of(const std::string& text) {
  std::set<std::string, std::less<>> words;
  for (size_t i = 0; i < text.size();) {
    if (!starts_name(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_name_character(text[end])) ++end;
    words.insert(text.substr(i, end - i));
    i = end;
  }
  return words;
}

/// Whether it is `_` or `_7`: a value that a cell has shown.
bool is_kept_value(std::string_view word) {
  return word[0] == '_' && std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool same(const protocol::Forget& a, const protocol::Forget& b) { return a.names == b.names && a.undo == b.undo; }

/// Returns the first line in which two texts differ, as "LINE: recorded | now".
std::string first_difference(const std::string& recorded, const std::string& now) {
  const auto line_at = [](const std::string& text, size_t begin) {
    return begin > text.size() ? std::string() : text.substr(begin, text.find('\n', begin) - begin);
  };
  size_t begin = 0;
  for (size_t i = 0; i < std::min(recorded.size(), now.size()) && recorded[i] == now[i]; ++i)
    if (recorded[i] == '\n') begin = i + 1;
  return "  built: " + line_at(recorded, begin) + "\n  now:   " + line_at(now, begin);
}

std::string list(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

const protocol::Compile& compile_of(const BuiltStep& step) { return std::get<protocol::Compile>(step.request); }
const protocol::Compiled& compiled_of(const BuiltStep& step) { return std::get<protocol::Compiled>(step.answer); }

/// Returns what `rank` was given; null where there was nothing to give.
const protocol::CompiledObject* object_of(const BuiltStep& step, int rank) {
  for (const auto& object : compiled_of(step).objects)
    if (object.ranks.contains(rank)) return &object;
  return nullptr;
}

int64_t steps_done(const protocol::Settle& settle, int rank) {
  const auto found = settle.steps_done.find(rank);
  return found == settle.steps_done.end() ? 0 : found->second;
}

/// Whether the cell changes what texts mean without defining a name.
bool has_directive(const std::string& text) { return words_of(text).contains("using"); }

bool is_loaded(const BuiltStep& step) { return step.settle && step.settle->loaded; }

}  // namespace

BuiltViews::BuiltViews(std::shared_ptr<const BuiltFile> file, size_t session)
    : file_(std::move(file)), session_(session) {}

const BuiltSteps& BuiltViews::steps(const Candidate& candidate) const {
  return file_->takes[candidate.take].sessions[session_];
}

/// Returns recorded ranks that `rank` may be like. If it has done nothing yet, all, that with its number first.
std::vector<BuiltViews::Candidate> BuiltViews::candidates(int rank) const {
  if (const auto known = views_.find(rank); known != views_.end()) return known->second;
  std::vector<Candidate> fresh;
  for (size_t take = 0; take < file_->takes.size(); ++take) {
    if (session_ >= file_->takes[take].sessions.size()) continue;
    const int ranks = file_->takes[take].ranks;
    if (rank < ranks) fresh.push_back({.take = take, .rank = rank, .differs = {}});
    for (int other = 0; other < ranks; ++other)
      if (other != rank) fresh.push_back({.take = take, .rank = other, .differs = {}});
  }
  return fresh;
}

/// Returns the names that cells had defined when the recorded rank came to this step.
const protocol::Names* BuiltViews::names_before(const Candidate& candidate) const {
  const BuiltSteps& all = steps(candidate);
  for (size_t i = std::min(candidate.next, all.size()); i-- > 0;)
    if (all[i]->names) return &*all[i]->names;
  return nullptr;
}

/// Returns names that the step at `at` has defined, or defined again.
std::set<std::string> BuiltViews::defined_by(const Candidate& at) const {
  std::set<std::string> defined;
  const BuiltStep& step = *steps(at)[at.next];
  for (const auto& object : compiled_of(step).objects)
    for (const auto& each : object.steps) defined.insert(each.names.begin(), each.names.end());
  if (!step.names) return defined;
  const auto key = [](const protocol::Name& name) { return std::tie(name.name, name.kind, name.type, name.cell); };
  const protocol::Names* before = names_before(at);
  for (const protocol::Name& name : step.names->names)
    if (!before || std::none_of(before->names.begin(), before->names.end(),
                                [&](const protocol::Name& known) { return key(known) == key(name); }))
      defined.insert(name.name);
  return defined;
}

/// Finds the step of the candidate's take that compiles the text for its rank. Steps before it that the rank has not
/// taken part in are passed over: what they define is what differs.
std::optional<BuiltViews::Hit> BuiltViews::find(Candidate candidate, const protocol::Compile& request) const {
  const BuiltSteps& all = steps(candidate);
  for (; candidate.next < all.size(); ++candidate.next) {
    const BuiltStep& step = *all[candidate.next];
    if (const auto* forget = std::get_if<protocol::Forget>(&step.request)) {
      if (candidate.forgotten == forgets_.size() || !same(forgets_[candidate.forgotten], *forget)) return std::nullopt;
      ++candidate.forgotten;
      continue;
    }
    const auto* compile = std::get_if<protocol::Compile>(&step.request);
    if (!compile || !compile->ranks.contains(candidate.rank)) continue;
    if (compile->number > request.number) return std::nullopt;
    if (compile->number == request.number && compile->text == request.text && compile->optimize == request.optimize &&
        compile->debug == request.debug) {
      if (candidate.forgotten != forgets_.size()) return std::nullopt;
      return Hit{candidate, &step};
    }
    if (!is_loaded(step)) continue;
    candidate.differs.merge(defined_by(candidate));
    candidate.uneven = true;
    candidate.lacks_directive = candidate.lacks_directive || has_directive(compile->text);
  }
  return std::nullopt;
}

/// Says why the text might mean something else to a rank that differs so from the recorded one; empty: it can't.
std::string BuiltViews::conflict(const Candidate& candidate, const std::string& text) const {
  if (candidate.differs.empty() && !candidate.uneven) return "";
  // What it changes has no names of its own.
  if (candidate.lacks_directive) return "using namespace";
  const auto words = words_of(text);
  for (const std::string& word : words)
    if (candidate.uneven && is_kept_value(word)) return word;
  if (candidate.differs.empty()) return "";
  for (const std::string& name : candidate.differs)
    if (words.contains(last_part(name)) || last_part(name).starts_with("operator")) return name;
  // Others may stand in what these stand for.
  if (const protocol::Names* known = names_before(candidate))
    for (const protocol::Name& name : known->names)
      if (name.kind == "macro" && words.contains(name.name)) return *candidate.differs.begin();
  const size_t directive = text.find('#');
  return directive != std::string::npos && text.find("include", directive) != std::string::npos
             ? *candidate.differs.begin()
             : "";
}

/// Puts first, for each rank, an object that as many ranks as possible can have: ranks that run different bytes can't be
/// compared by the places of their calls.
void BuiltViews::choose_common(std::map<int, std::vector<Hit>>& hits) {
  const auto object_id = [](const Hit& hit) {
    const protocol::CompiledObject* object = object_of(*hit.step, hit.candidate.rank);
    return object ? object->frame : -1;
  };
  RankSet open;
  for (const auto& [rank, found] : hits) open.insert(rank);
  while (!open.empty()) {
    std::vector<std::pair<int64_t, RankSet>> offers;  // object → ranks, best first
    for (const int rank : open)
      for (const Hit& hit : hits[rank]) {
        const int64_t id = object_id(hit);
        auto offer = std::find_if(offers.begin(), offers.end(), [&](const auto& each) { return each.first == id; });
        if (offer == offers.end()) offer = offers.insert(offers.end(), {id, {}});
        offer->second.insert(rank);
      }
    const auto [id, ranks] = *std::max_element(
        offers.begin(), offers.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const int rank : ranks) {
      auto& found = hits[rank];
      const auto chosen =
          std::find_if(found.begin(), found.end(), [&](const Hit& hit) { return object_id(hit) == id; });
      std::rotate(found.begin(), chosen, chosen + 1);
    }
    open = open - ranks;
  }
}

std::optional<protocol::Compiled> BuiltViews::compile(const protocol::Compile& request) {
  pending_.clear();
  why_not_.clear();
  std::map<int, std::vector<Hit>> hits;
  RankSet missing;
  std::set<std::string> conflicts;
  for (const int rank : request.ranks) {
    std::vector<Hit>& found = hits[rank];
    for (const Candidate& candidate : candidates(rank)) {
      auto hit = find(candidate, request);
      if (!hit) continue;
      // The message of a cell that does not compile names ranks.
      const bool compiles = compiled_of(*hit->step).status == CompileStatus::ok;
      const bool same_ranks = compile_of(*hit->step).ranks == request.ranks && candidate.rank == rank;
      const std::string in_conflict = conflict(hit->candidate, request.text);
      if (!in_conflict.empty()) conflicts.insert(in_conflict);
      if (in_conflict.empty() && (compiles || same_ranks)) found.push_back(std::move(*hit));
    }
    std::stable_sort(found.begin(), found.end(), [](const Hit& a, const Hit& b) {
      return std::pair(a.candidate.differs.size(), a.candidate.uneven) <
             std::pair(b.candidate.differs.size(), b.candidate.uneven);
    });
    if (found.empty()) missing.insert(rank);
  }
  if (!missing.empty() || hits.empty()) {
    why_not_ = explain(request, missing, conflicts);
    return std::nullopt;
  }

  choose_common(hits);

  // What does not compile for one rank runs on none.
  const Hit* first = &hits.begin()->second.front();
  for (const auto& [rank, found] : hits)
    if (compiled_of(*found.front().step).status != CompileStatus::ok) first = &found.front();
  protocol::Compiled result = compiled_of(*first->step);
  result.cell = request.cell;
  result.ms = 0;
  result.objects.clear();
  if (result.status != CompileStatus::ok) return result;
  for (const auto& [rank, found] : hits) {
    const BuiltStep& step = *found.front().step;
    result.repeatable = result.repeatable && compiled_of(step).repeatable;
    const protocol::CompiledObject* object = object_of(step, found.front().candidate.rank);
    if (!object) continue;
    const auto known = std::find_if(result.objects.begin(), result.objects.end(),
                                    [&](const auto& each) { return each.frame == object->frame; });
    if (known != result.objects.end()) {
      known->ranks.insert(rank);
    } else {
      result.objects.push_back(*object);
      result.objects.back().ranks = RankSet{rank};
    }
  }
  result.repeatable = result.repeatable && result.objects.size() <= 1;
  pending_ = std::move(hits);
  return result;
}

void BuiltViews::settle(const protocol::Settle& settle) {
  for (auto& [rank, found] : pending_) {
    std::vector<Candidate>& view = views_[rank];
    view.clear();
    for (Hit& hit : found) {
      Candidate next = std::move(hit.candidate);
      const BuiltStep& step = *hit.step;
      const protocol::CompiledObject* object = object_of(step, next.rank);
      const bool was_loaded = is_loaded(step);
      if (settle.loaded != was_loaded) {
        next.differs.merge(defined_by(next));
        next.uneven = next.uneven || object != nullptr;
        next.lacks_directive = next.lacks_directive || has_directive(compile_of(step).text);
      } else if (was_loaded && object) {
        const int64_t here = steps_done(settle, rank), there = steps_done(*step.settle, next.rank);
        next.uneven = next.uneven || here != there;
        for (size_t i = 0; i < object->steps.size(); ++i) {
          const auto& names = object->steps[i].names;
          const bool is_here = static_cast<int64_t>(i) < here, is_there = static_cast<int64_t>(i) < there;
          for (const std::string& name : names) {
            if (is_here != is_there) next.differs.insert(name);
            if (is_here && is_there) next.differs.erase(name);
          }
        }
      }
      ++next.next;
      view.push_back(std::move(next));
    }
    std::stable_sort(view.begin(), view.end(), [](const Candidate& a, const Candidate& b) {
      return std::pair(a.differs.size(), a.uneven) < std::pair(b.differs.size(), b.uneven);
    });
  }
  pending_.clear();
}

bool BuiltViews::forget(const protocol::Forget& forget) {
  pending_.clear();
  const auto has_it = [&](const Take& take) {
    if (session_ >= take.sessions.size()) return false;
    size_t passed = 0;
    for (const auto& step : take.sessions[session_])
      if (const auto* each = std::get_if<protocol::Forget>(&step->request))
        if (passed++ == forgets_.size()) return same(*each, forget);
    return false;
  };
  if (!std::any_of(file_->takes.begin(), file_->takes.end(), has_it)) {
    why_not_ = "the file was built without forgetting these names at this point";
    return false;
  }
  forgets_.push_back(forget);
  return true;
}

std::optional<protocol::Inspection> BuiltViews::inspect(const protocol::Inspect& request) const {
  std::optional<protocol::Inspection> found;
  for (const int rank : request.ranks) {
    const auto all = candidates(rank);
    if (all.empty()) continue;
    const Candidate& lead = all.front();
    const BuiltSteps& recorded = steps(lead);
    for (size_t i = 0; i < recorded.size(); ++i) {
      const auto* asked = std::get_if<protocol::Inspect>(&recorded[i]->request);
      if (!asked || asked->expression != request.expression) continue;
      found = std::get<protocol::Inspection>(recorded[i]->answer);
      if (i >= lead.next) return found;  // the same question may have been asked before
    }
  }
  return found;
}

protocol::Names BuiltViews::names() const {
  struct View {
    int rank;
    Candidate lead;
  };
  std::vector<View> views;
  for (const auto& [rank, view] : views_) {
    if (view.empty()) continue;
    View each{rank, view.front()};
    // The recorded rank passes over what the ranks have forgotten since.
    const BuiltSteps& all = steps(each.lead);
    for (size_t i = each.lead.next; i < all.size() && each.lead.forgotten < forgets_.size(); ++i)
      if (std::holds_alternative<protocol::Forget>(all[i]->request)) {
        ++each.lead.forgotten;
        each.lead.next = i + 1;
      }
    views.push_back(std::move(each));
  }
  std::stable_sort(views.begin(), views.end(), [](const View& a, const View& b) { return a.lead.next > b.lead.next; });
  protocol::Names result;
  for (const View& view : views) {
    const protocol::Names* known = names_before(view.lead);
    if (!known) continue;
    for (const protocol::Name& name : known->names) {
      const bool is_unsure = view.lead.differs.contains(name.name);
      if (!name.ranks.contains(view.lead.rank) || is_unsure) continue;
      const auto entry = std::find_if(result.names.begin(), result.names.end(), [&](const protocol::Name& each) {
        return each.name == name.name && each.kind == name.kind;
      });
      if (entry == result.names.end()) {
        result.names.push_back(name);
        result.names.back().ranks = RankSet{view.rank};
      } else if (entry->cell == name.cell) {
        entry->ranks.insert(view.rank);
      } else if (entry->cell < name.cell) {
        *entry = name;
        entry->ranks = RankSet{view.rank};
      }
    }
  }
  return result;
}

/// Says why there is nothing for `ranks`.
std::string BuiltViews::explain(const protocol::Compile& request, const RankSet& ranks,
                                const std::set<std::string>& conflicts) const {
  const char* const kOr = "where there is a compiler, run the script itself";
  if (!conflicts.empty())
    return fmt::format(
        "it depends on {}, which {} not the same here as when the file was built: an earlier cell ended elsewhere, or "
        "did not run, on {}. Tag a cell that is expected to fail raises-exception, and build the file again; {}",
        list(conflicts), conflicts.size() == 1 ? "is" : "are", ranks.words(), kOr);
  const BuiltStep* same_cell = nullptr;
  std::set<int> built_for;
  for (const Take& take : file_->takes) {
    built_for.insert(take.ranks);
    if (session_ >= take.sessions.size()) continue;
    for (const auto& step : take.sessions[session_]) {
      const auto* compile = std::get_if<protocol::Compile>(&step->request);
      if (!compile || compile->number != request.number) continue;
      if (compile->text == request.text && compile->optimize == request.optimize && compile->debug == request.debug) {
        if (compiled_of(*step).status != CompileStatus::ok)
          return fmt::format("it did not compile when the file was built, for {}; {}", compile->ranks.words(), kOr);
        return fmt::format(
            "{} {} part in it here and did not when the file was built, or what came before it is another. Build the "
            "file "
            "for the ranks that run it (-n); {}",
            ranks.words(), ranks.size() == 1 ? "takes" : "take", kOr);
      }
      if (!same_cell) same_cell = step.get();
    }
  }
  if (!same_cell)
    return fmt::format(
        "the file has no cell {}. Cells that are not in the script, and magics whose C++ depends on what the "
        "ranks do, can't be built ahead; {}",
        request.number, kOr);
  const int ranks_built = built_for.empty() ? 0 : *built_for.begin();
  const std::string size = request.text.find("RankSet{") == std::string::npos
                               ? std::string("Build the file again")
                               : fmt::format("It names ranks, and the file was built for {} (-n)", ranks_built);
  return fmt::format("the text to compile is another than when the file was built:\n{}\n{}; {}",
                     first_difference(compile_of(*same_cell).text, request.text), size, kOr);
}

}  // namespace lockstep::shell
