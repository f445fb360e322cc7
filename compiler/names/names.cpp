#include "compiler/names/names.h"

#include <algorithm>

#include "compiler/front_end/user_headers.h"
#include "compiler/names/kept_values.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

/// Takes `decl` out of what a lookup in `context` finds.
void remove_from(DeclContext* context, NamedDecl* decl) {
  StoredDeclsMap* map = context->getLookupPtr();
  if (!map) return;
  const auto found = map->find(decl->getDeclName());
  if (found == map->end() || found->second.isNull()) return;
  bool there = false;
  for (NamedDecl* one : found->second.getLookupResult()) there |= one == decl;
  if (there) found->second.remove(decl);
}

}  // namespace

void NameTable::hide(const std::string& name, NamedDecl* decl) {
  take_out(decl);
  const auto known = by_decl_.find(decl);
  if (known != by_decl_.end()) {
    definitions_[known->second].exposed = false;
    changed_.push_back(known->second);
    return;
  }
  Definition of_header;
  of_header.name = name;
  of_header.decl = decl;
  of_header.everywhere = true;
  of_header.exposed = false;
  define(std::move(of_header));
}

/// Takes each declaration of an entity out, since lookups find one of them: the definition rather than a declaration in
/// the same cell, the last reopening of a namespace. Declarations with an entry of their own in the table are kept.
void NameTable::take_out(NamedDecl* decl) {
  take_out_one(decl);
  for (Decl* again : decl->redecls())
    if (auto* other = llvm::cast<NamedDecl>(again); !by_decl_.contains(other)) take_out_one(other);
}

void NameTable::take_out_one(NamedDecl* decl) {
  auto& resolver = sema_.IdResolver;
  for (auto it = resolver.begin(decl->getDeclName()), end = resolver.end(); it != end; ++it)
    if (*it == decl) {
      resolver.RemoveDecl(decl);
      sema_.TUScope->RemoveDecl(decl);
      break;
    }
  // extern "C" declarations of all scopes share one name.
  if (decl->getDeclContext()->getRedeclContext()->isFileContext()) {
    auto* of_c = sema_.Context.getExternCContextDecl();
    of_c->lookup(decl->getDeclName());
    remove_from(of_c, decl);
  }
  // Lookups in a scope find the names of transparent contexts and inline namespaces inside it.
  for (DeclContext* context = decl->getDeclContext(); context; context = context->getParent()) {
    remove_from(context->getPrimaryContext(), decl);
    if (!context->isTransparentContext() && !context->isInlineNamespace()) break;
  }
}

void NameTable::put_back(NamedDecl* decl) {
  DeclContext* context = decl->getDeclContext()->getRedeclContext();
  if (context->isTranslationUnit()) {
    sema_.IdResolver.AddDecl(decl);
    sema_.TUScope->AddDecl(decl);
  }
  decl->getDeclContext()->makeDeclVisibleInContext(decl);
}

bool NameTable::is_found(NamedDecl* decl) const {
  for (const NamedDecl* one : decl->getDeclContext()->getRedeclContext()->lookup(decl->getDeclName()))
    if (one->getCanonicalDecl() == decl->getCanonicalDecl()) return true;
  return false;
}

bool NameTable::replaces(const Definition& later, const Definition& earlier) const {
  if (!later.decl || !earlier.decl) return !later.decl == !earlier.decl;
  if (llvm::isa<TagDecl>(earlier.decl) && llvm::isa<VarDecl, BindingDecl, FunctionDecl>(later.decl)) return false;
  const auto* new_function = later.decl->getAsFunction();
  const auto* old_function = earlier.decl->getAsFunction();
  if (!new_function || !old_function) return true;
  if (later.decl->getCanonicalDecl() == earlier.decl->getCanonicalDecl()) return true;
  return !sema_.IsOverload(later.decl->getAsFunction(), const_cast<FunctionDecl*>(old_function),
                           /*UseMemberUsingDeclRules=*/false) &&
         llvm::isa<FunctionTemplateDecl>(later.decl) == llvm::isa<FunctionTemplateDecl>(earlier.decl);
}

void NameTable::define(Definition definition) {
  const size_t index = definitions_.size();
  auto& same = by_name_[definition.name];
  for (size_t earlier : same) {
    if (definitions_[earlier].cell == definition.cell && definitions_[earlier].decl && definition.decl &&
        definitions_[earlier].decl->getCanonicalDecl() == definition.decl->getCanonicalDecl())
      return;  // declared and defined in one cell: one name
    if (definitions_[earlier].exposed) changed_.push_back(earlier);
  }
  changed_.push_back(index);
  same.push_back(index);
  const size_t last = definition.name.rfind("::");
  const std::string last_name = last == std::string::npos ? definition.name : definition.name.substr(last + 2);
  by_last_name_[last_name.starts_with("operator") ? "operator" : last_name].push_back(index);
  if (definition.decl) by_decl_[definition.decl] = index;
  definitions_.push_back(std::move(definition));
}

bool NameTable::is_replaced(size_t index, const std::function<bool(const Definition&)>& is_so) const {
  const std::vector<size_t>& same = by_name_.at(definitions_[index].name);
  for (auto later = same.rbegin(); later != same.rend() && *later > index; ++later)
    if (is_so(definitions_[*later]) && replaces(definitions_[*later], definitions_[index])) return true;
  return false;
}

bool NameTable::sees(const Definition& definition, int rank) const {
  if (definition.forgotten || (!definition.everywhere && !definition.ranks.contains(rank))) return false;
  return !is_replaced(static_cast<size_t>(&definition - definitions_.data()),
                      [&](const Definition& later) { return !later.forgotten && later.ranks.contains(rank); });
}

void NameTable::show(Definition& definition, int rank, std::set<const Decl*>& gone) {
  if (!definition.decl) return;
  const bool seen = !definition.found_last && sees(definition, rank);
  if (seen == definition.exposed) return;
  if (seen) {
    put_back(definition.decl);
  } else {
    take_out(definition.decl);
    gone.insert(definition.decl->getCanonicalDecl());
  }
  definition.exposed = seen;
}

void NameTable::show_view(int rank) {
  std::set<const Decl*> gone;
  if (shown_rank_ == rank) {  // a session has thousands of definitions, and a cell changes few
    for (const size_t index : changed_) show(definitions_[index], rank, gone);
  } else {
    for (auto& definition : definitions_) show(definition, rank, gone);
  }
  shown_rank_ = rank;
  changed_.clear();
  // Lookups may have found a definition, hidden now, in the place of a declaration that this rank has.
  if (gone.empty()) return;
  for (auto& definition : definitions_)
    if (definition.decl && definition.exposed && gone.contains(definition.decl->getCanonicalDecl()) &&
        !is_found(definition.decl))
      put_back(definition.decl);
}

std::vector<RankSet> NameTable::group(const RankSet& ranks, const std::set<std::string>& mentioned) const {
  std::vector<size_t> relevant;
  const auto add = [&](const std::string& name) {
    const auto found = by_last_name_.find(name);
    if (found != by_last_name_.end()) relevant.insert(relevant.end(), found->second.begin(), found->second.end());
  };
  add("operator");
  for (const auto& name : mentioned) add(name);
  std::map<std::vector<size_t>, RankSet> groups;
  for (int rank : ranks) {
    std::vector<size_t> view;
    for (size_t index : relevant)
      if (sees(definitions_[index], rank)) view.push_back(index);
    groups[view].insert(rank);
  }
  std::vector<RankSet> sets;
  for (auto& [view, set] : groups) sets.push_back(set);
  std::sort(sets.begin(), sets.end());
  return sets;
}

void NameTable::find_last(VarDecl* value) {
  hide(value->getNameAsString(), value);
  definitions_[by_decl_.at(value)].found_last = true;
}

NamedDecl* NameTable::value_found_last(const std::string& name, int rank) const {
  for (const Definition* definition : find(name))
    if (definition->found_last && sees(*definition, rank)) return definition->decl;
  return nullptr;
}

void NameTable::settle(int64_t cell, const std::map<int, int64_t>& steps_done) {
  for (size_t index = definitions_.size(); index-- > 0;) {
    Definition& definition = definitions_[index];
    if (definition.cell != 0 && definition.cell < cell) break;  // they are in the order of cells; the header's have 0
    if (definition.cell != cell) continue;
    RankSet have;
    for (int rank : definition.ranks) {
      const auto done = steps_done.find(rank);
      if (done != steps_done.end() && done->second >= definition.steps_needed) have.insert(rank);
    }
    if (have != definition.ranks) shown_rank_.reset();
    definition.ranks = have;
  }
  for (auto& used : used_)
    if (used.cell == cell)
      for (int rank : RankSet(used.ranks))
        if (!steps_done.contains(rank)) used.ranks.erase(rank);
}

void NameTable::forget(const std::vector<std::string>& names) {
  forget_if([&](const Definition& definition) {
    return names.empty() || std::find(names.begin(), names.end(), definition.name) != names.end();
  });
  if (names.empty()) used_.clear();
}

void NameTable::lose(int rank, const std::map<int64_t, std::vector<std::string>>& names) {
  shown_rank_.reset();
  for (size_t index = definitions_.size(); index-- > 0;) {
    const Definition& definition = definitions_[index];
    const auto of_cell = names.find(definition.cell);
    if (of_cell == names.end() || !definition.ranks.contains(rank) ||
        std::ranges::find(of_cell->second, definition.name) == of_cell->second.end())
      continue;
    for (const size_t each : by_name_.at(definition.name))
      if (each <= index) definitions_[each].ranks.erase(rank);
  }
}

void NameTable::join(int rank, const RankSet& like) {
  shown_rank_.reset();
  for (auto& definition : definitions_) definition.ranks.join(rank, like);
  for (auto& used : used_) used.ranks.join(rank, like);
}

void NameTable::forget_headers(const std::set<std::string>& paths) {
  const auto& sources = sema_.getSourceManager();
  forget_if([&](const Definition& definition) {
    if (!definition.decl) return false;
    const auto id = sources.getFileID(sources.getExpansionLoc(definition.decl->getLocation()));
    const auto file = sources.getFileEntryRefForID(id);
    return file && paths.contains(without_dots(file->getName()));
  });
}

/// Forgetting a definition does not bring back earlier definitions that it replaced, except those of the header.
void NameTable::forget_if(const std::function<bool(const Definition&)>& is_meant) {
  shown_rank_.reset();
  std::set<const Definition*> meant;
  for (const Definition& definition : definitions_)
    if (is_meant(definition)) meant.insert(&definition);
  for (size_t index = 0; index < definitions_.size(); ++index) {
    Definition& definition = definitions_[index];
    const auto is_gone = [&](const Definition& each) { return meant.contains(&each); };
    if (!definition.everywhere) definition.forgotten |= is_gone(definition) || is_replaced(index, is_gone);
  }
}

void NameTable::undo(const std::set<int64_t>& cells) {
  shown_rank_.reset();
  for (auto& definition : definitions_)
    if (cells.contains(definition.cell)) definition.forgotten = true;
  std::erase_if(used_, [&](const UsedNamespace& used) { return cells.contains(used.cell); });
}

std::vector<const Definition*> NameTable::find(const std::string& name) const {
  std::vector<const Definition*> found;
  const auto indices = by_name_.find(name);
  if (indices != by_name_.end())
    for (size_t index : indices->second) found.push_back(&definitions_[index]);
  return found;
}

const Definition* NameTable::of(const NamedDecl* decl) const {
  for (auto it = definitions_.rbegin(); it != definitions_.rend(); ++it)
    if (it->decl && it->decl->getCanonicalDecl() == decl->getCanonicalDecl()) return &*it;
  return nullptr;
}

std::vector<protocol::Name> NameTable::list(const PrintingPolicy& policy) const {
  std::vector<protocol::Name> names;
  for (const auto& definition : definitions_) {
    RankSet ranks;
    for (int rank : definition.ranks)
      if (sees(definition, rank)) ranks.insert(rank);
    if (ranks.empty() || definition.everywhere || definition.kind == kKeptValue) continue;
    protocol::Name name{definition.name, definition.kind, "", definition.number, ranks};
    if (const auto* value = llvm::dyn_cast_or_null<ValueDecl>(definition.decl))
      name.type = value->getType().getAsString(policy);
    else if (const auto* alias = llvm::dyn_cast_or_null<TypedefNameDecl>(definition.decl))
      name.type = alias->getUnderlyingType().getAsString(policy);
    else if (const auto* function = llvm::dyn_cast_or_null<FunctionTemplateDecl>(definition.decl))
      name.type = function->getTemplatedDecl()->getType().getAsString(policy);
    else if (const auto* tag = llvm::dyn_cast_or_null<TagDecl>(definition.decl))
      name.type = tag->getKindName().str();
    else if (const auto* space = llvm::dyn_cast_or_null<NamespaceAliasDecl>(definition.decl))
      name.type = space->getNamespace()->getQualifiedNameAsString();
    names.push_back(std::move(name));
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return names;
}

const std::string& NameTable::parameters_of(const NamedDecl* function) const {
  static const std::string none;
  const auto found = parameters_.find(function);
  return found == parameters_.end() ? none : found->second;
}

/// Clang's note points at the name of the earlier definition, or at a parameter whose default argument is redefined.
static bool stands_at(const NamedDecl* decl, unsigned place) {
  if (decl->getLocation().getRawEncoding() == place) return true;
  const FunctionDecl* function = decl->getAsFunction();
  if (!function) return false;
  for (const FunctionDecl* declaration : function->redecls())
    for (const ParmVarDecl* parameter : declaration->parameters())
      if (parameter->getLocation().getRawEncoding() == place) return true;
  return false;
}

std::vector<std::pair<std::string, NamedDecl*>> NameTable::at_place(unsigned place) const {
  std::vector<std::pair<std::string, NamedDecl*>> found;
  for (const auto& definition : definitions_)
    if (definition.decl && definition.exposed && stands_at(definition.decl, place))
      found.emplace_back(definition.name, definition.decl);
  return found;
}

NamedDecl* NameTable::hidden_namespace(const std::string& name, int rank) const {
  const auto indices = by_name_.find(name);
  if (indices == by_name_.end()) return nullptr;
  const auto hides = [&](const Definition& later) {
    return !later.forgotten && later.ranks.contains(rank) &&
           !llvm::isa_and_nonnull<ValueDecl, FunctionTemplateDecl, VarTemplateDecl>(later.decl);
  };
  for (auto it = indices->second.rbegin(); it != indices->second.rend(); ++it) {
    const Definition& definition = definitions_[*it];
    if (!llvm::isa_and_nonnull<NamespaceDecl, NamespaceAliasDecl>(definition.decl) || definition.forgotten) continue;
    if (!definition.everywhere && !definition.ranks.contains(rank)) continue;
    if (!is_replaced(*it, hides)) return definition.decl;
  }
  return nullptr;
}

std::vector<NamedDecl*> NameTable::lookup(const std::string& path, const std::string& name) const {
  auto& context = sema_.Context;
  DeclContext* where = context.getTranslationUnitDecl();
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find("::", at), path.size());
    DeclContext* inner = nullptr;
    for (NamedDecl* one : where->lookup(&context.Idents.get(path.substr(at, end - at)))) {
      if (auto* space = llvm::dyn_cast<NamespaceDecl>(one)) inner = space->getPrimaryContext();
    }
    if (!inner) return {};
    where = inner;
    at = end + 2;
  }
  std::vector<NamedDecl*> found;
  for (NamedDecl* one : where->lookup(&context.Idents.get(name))) found.push_back(one);
  return found;
}

}  // namespace lockstep::compiler
