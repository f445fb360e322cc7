#include "compiler/names/kept_values.h"

#include <algorithm>
#include <string_view>

#include "protocol/whole_number.h"

namespace lockstep::compiler {

using namespace clang;

std::optional<int64_t> kept_number(const std::string& name) {
  if (name == "_") return 0;
  if (name.size() < 2 || name[0] != '_' || name[1] == '0') return std::nullopt;
  return protocol::whole_number<int64_t>(std::string_view(name).substr(1), 1);
}

void KeptValues::remember(int64_t number, const RankSet& ranks, QualType type, const std::string& tag, int64_t steps) {
  auto& context = sema_.Context;
  const std::string name = "__lockstep_value_" + tag;
  auto* alias = TypedefDecl::Create(context, context.getTranslationUnitDecl(), SourceLocation(), SourceLocation(),
                                    &context.Idents.get(name), context.getTrivialTypeSourceInfo(type));
  sema_.PushOnScopeChains(alias, sema_.TUScope);
  pending_[number].push_back({ranks, name, steps});
}

void KeptValues::settle(const std::map<int, int64_t>& steps_done) {
  for (auto& [number, types] : pending_)
    for (auto& type : types) {
      const bool shown = std::any_of(type.ranks.begin(), type.ranks.end(), [&](int rank) {
        const auto done = steps_done.find(rank);
        return done != steps_done.end() && done->second >= type.steps;
      });
      if (shown) types_[number].insert(types_[number].begin(), std::move(type));
    }
  pending_.clear();
}

void KeptValues::repeat(int64_t number, int64_t of) {
  if (const auto known = types_.find(of); known != types_.end()) types_[number] = known->second;
}

/// Whether the name refers to something else.
bool KeptValues::has_meaning(const std::string& name, const NameTable& names, int rank) const {
  for (const Definition* definition : names.find(name))
    if (definition->kind != kKeptValue && names.sees(*definition, rank)) return true;
  const DeclarationName identifier(&sema_.Context.Idents.get(name));
  for (const auto& used : names.used_namespaces())
    if (used.ranks.contains(rank) && !used.space->getPrimaryContext()->lookup(identifier).empty()) return true;
  return false;
}

std::string KeptValues::declarations(const std::set<std::string>& referred, const Tokens& tokens,
                                     const NameTable& names, int rank) const {
  std::string text;
  if (types_.empty()) return text;
  for (const auto& name : referred) {
    const auto number = kept_number(name);
    // This cell itself may have `using namespace std::placeholders;`.
    if (!number || referred.contains("placeholders") || has_meaning(name, names, rank)) continue;
    const auto known = *number == 0 ? std::prev(types_.end()) : types_.find(*number);
    if (known == types_.end()) continue;
    const auto& types = known->second;
    auto type = std::find_if(types.begin(), types.end(), [&](const Type& one) { return one.ranks.contains(rank); });
    if (type == types.end()) type = types.begin();  // at run time the rank reports that it has no such value
    text += "auto& " + name + " = __lockstep_kept_value<" + type->name + ">(" + std::to_string(known->first) + ");";
  }
  if (text.empty()) return text;
  const auto& sources = sema_.getSourceManager();
  for (const Token& token : tokens)
    if (token.is(tok::identifier) && kept_number(token.getIdentifierInfo()->getName().str())) {
      const unsigned line = sources.getPresumedLineNumber(sources.getExpansionLoc(token.getLocation()));
      return std::string(line - 1, '\n') + text;
    }
  return text;
}

}  // namespace lockstep::compiler
