#include "compiler/objects/resident_symbols.h"

#include <llvm/Object/ELFObjectFile.h>

#include "protocol/error.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

/// MultiplexExternalSemaSource of clang 19 takes EK_Always (which is 0) for "no answer".
class SourceInFront : public MultiplexExternalSemaSource {
 public:
  SourceInFront(ResidentSymbols* front, ExternalSemaSource* reader)
      : MultiplexExternalSemaSource(front, reader), front_(front) {}
  ExtKind hasExternalDefinitions(const Decl* decl) override { return front_->hasExternalDefinitions(decl); }

 private:
  ResidentSymbols* front_;
};

}  // namespace

ResidentSymbols::ResidentSymbols(ASTContext& context)
    : context_(context), mangler_(context.createMangleContext()), rank_sets_(1), covers_(1, true) {}

void ResidentSymbols::attach(Sema& sema) {
  auto* reader = llvm::cast<ExternalSemaSource>(context_.getExternalSource());
  reader->Retain();  // the multiplexer below holds both, and lives as long as the context
  Retain();
  context_.setExternalSource(new SourceInFront(this, reader));
  sema.addExternalSource(this);
}

void ResidentSymbols::add_library(const std::string& path) {
  auto file = llvm::object::ObjectFile::createObjectFile(path);
  if (!file) throw StartError("the prelude " + path + " can't be read: " + llvm::toString(file.takeError()));
  const auto* elf = llvm::dyn_cast<llvm::object::ELFObjectFileBase>(file->getBinary());
  if (!elf) throw StartError("the prelude " + path + " is not a shared object");
  for (const auto& symbol : elf->getDynamicSymbolIterators()) {
    auto flags = symbol.getFlags();
    if (!flags) {
      llvm::consumeError(flags.takeError());
      continue;
    }
    if (*flags & llvm::object::SymbolRef::SF_Undefined) continue;
    if (auto name = symbol.getName())
      symbols_[*name].owners = {0};
    else
      llvm::consumeError(name.takeError());
  }
}

void ResidentSymbols::add(const std::vector<std::string>& symbols, const RankSet& ranks) {
  unsigned owner = 1;
  while (owner < rank_sets_.size() && rank_sets_[owner] != ranks) ++owner;
  if (owner == rank_sets_.size()) {
    rank_sets_.push_back(ranks);
    covers_.push_back(false);
  }
  for (const auto& name : symbols) {
    auto& owners = symbols_[name].owners;
    if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
  }
}

void ResidentSymbols::start_cell(const RankSet& ranks, bool inline_bodies) {
  ++cell_;
  ranks_ = ranks;
  inline_bodies_ = inline_bodies;
  for (size_t i = 1; i < rank_sets_.size(); ++i) covers_[i] = (ranks - rank_sets_[i]).empty();
}

bool ResidentSymbols::loaded(const Symbol& symbol) const {
  for (unsigned owner : symbol.owners)
    if (covers_[owner]) return true;
  return false;
}

ResidentSymbols::Symbol& ResidentSymbols::symbol_of(GlobalDecl decl) {
  llvm::SmallString<256> name;
  llvm::raw_svector_ostream stream(name);
  mangler_->mangleName(decl, stream);
  return symbols_[name];
}

const std::vector<ResidentSymbols::Symbol*>& ResidentSymbols::symbols_of(const FunctionDecl* function) {
  auto [place, fresh] = known_.try_emplace(function);
  if (!fresh) return place->second;
  std::vector<Symbol*> symbols;
  if (mangler_->shouldMangleDeclName(function)) {
    if (const auto* constructor = llvm::dyn_cast<CXXConstructorDecl>(function)) {
      symbols.push_back(&symbol_of(GlobalDecl(constructor, Ctor_Complete)));
      symbols.push_back(&symbol_of(GlobalDecl(constructor, Ctor_Base)));
    } else if (const auto* destructor = llvm::dyn_cast<CXXDestructorDecl>(function)) {
      symbols.push_back(&symbol_of(GlobalDecl(destructor, Dtor_Complete)));
      symbols.push_back(&symbol_of(GlobalDecl(destructor, Dtor_Base)));
    } else {
      symbols.push_back(&symbol_of(GlobalDecl(function)));
    }
  }
  return known_[function] = std::move(symbols);
}

ExternalASTSource::ExtKind ResidentSymbols::hasExternalDefinitions(const Decl* decl) {
  if (!generating_) return EK_ReplyHazy;
  if (catching_up_ && !decl->isFromASTFile()) return EK_Always;
  if (const auto* variable = llvm::dyn_cast<VarDecl>(decl)) {
    const auto found = variables_.find(variable->getCanonicalDecl());
    if (found != variables_.end()) return found->second == cell_ ? EK_Never : EK_Always;
    return EK_ReplyHazy;
  }
  const auto* function = llvm::dyn_cast<FunctionDecl>(decl);
  if (!function || function->isDependentContext()) return EK_ReplyHazy;
  if (inline_bodies_ && function->isInlined()) return EK_ReplyHazy;
  const auto& symbols = symbols_of(function);
  if (symbols.empty()) return EK_ReplyHazy;
  bool on_every_rank = true;
  for (const Symbol* symbol : symbols) {
    if (!loaded(*symbol)) return EK_ReplyHazy;
    on_every_rank &= symbol->owners.front() == 0;
  }
  if (!on_every_rank) not_made_.insert(const_cast<FunctionDecl*>(function));
  return EK_Always;
}

}  // namespace lockstep::compiler
