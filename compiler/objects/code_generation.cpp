#include "compiler/objects/code_generation.h"

#include <llvm/IR/DebugInfoMetadata.h>

#include <stdexcept>

#include "protocol/cell_abi.h"

namespace lockstep::compiler {

using namespace clang;

CodeGeneration::CodeGeneration(CompilerInstance& instance, ResidentSymbols& resident)
    : instance_(instance), resident_(resident) {}

void CodeGeneration::add(const Event& event) {
  history_.push_back(event);
  if (active_) forward(*active_, event);
}

void CodeGeneration::warm_up() { generate(ReadCell(), {}, "warm", "warm", "lockstep_cell_0", {}); }

void CodeGeneration::forward(CodeGenerator& code, const Event& event) {
  switch (event.kind) {
    case Event::top_level:
      code.HandleTopLevelDecl(DeclGroupRef(static_cast<Decl*>(event.decl)));
      break;
    case Event::inline_function:
      code.HandleInlineFunctionDefinition(static_cast<FunctionDecl*>(event.decl));
      break;
    case Event::tag_definition:
      code.HandleTagDeclDefinition(static_cast<TagDecl*>(event.decl));
      break;
    case Event::tag_required:
      code.HandleTagDeclRequiredDefinition(static_cast<TagDecl*>(event.decl));
      break;
    case Event::static_member:
      code.HandleCXXStaticMemberVarInstantiation(static_cast<VarDecl*>(event.decl));
      break;
    case Event::tentative:
      code.CompleteTentativeDefinition(static_cast<VarDecl*>(event.decl));
      break;
    case Event::external_declaration:
      code.CompleteExternalDeclaration(static_cast<DeclaratorDecl*>(event.decl));
      break;
    case Event::vtable:
      code.HandleVTable(static_cast<CXXRecordDecl*>(event.decl));
      break;
    case Event::function_instantiation:
      code.HandleCXXImplicitFunctionInstantiation(static_cast<FunctionDecl*>(event.decl));
      break;
  }
}

CodeGeneration::Generator& CodeGeneration::generator(const CodeMode& mode) {
  Generator& generator = generators_[mode];
  auto llvm = std::make_unique<llvm::LLVMContext>();
  if (!generator.code) {
    generator.options = std::make_unique<CodeGenOptions>(instance_.getCodeGenOpts());
    auto& options = *generator.options;
    options.DisableFree = false;  // clang's driver ends after one file; here each cell would leave 280 KB
    options.OptimizationLevel = static_cast<unsigned>(mode.optimize);
    if (mode.optimize > 0) {
      options.setInlining(CodeGenOptions::NormalInlining);
      options.UnrollLoops = mode.optimize > 1;
      options.VectorizeLoop = mode.optimize > 1;
      options.VectorizeSLP = mode.optimize > 1;
      options.RelaxAll = false;
    }
    if (mode.debug) options.setDebugInfo(llvm::codegenoptions::FullDebugInfo);
    generator.code.reset(CreateLLVMCodeGen(instance_.getDiagnostics(), "header", &instance_.getVirtualFileSystem(),
                                           instance_.getHeaderSearchOpts(), instance_.getPreprocessorOpts(), options,
                                           *llvm));
    generator.code->Initialize(instance_.getASTContext());
  } else {
    generator.code->StartModule("cell", *llvm);
  }
  generator.llvm = std::move(llvm);  // only now: what StartModule replaces refers to the earlier one
  return generator;
}

namespace {

constexpr llvm::StringRef kInitializer = "__cxx_global_var_init";

/// Finds the functions of initialisers that were added to the module since the last call.
class Initializers {
 public:
  explicit Initializers(llvm::Module& module) : module_(module), seen_(module.size()) {}

  std::vector<llvm::Function*> fresh() {
    std::vector<llvm::Function*> found;
    size_t count = module_.size();
    auto it = module_.end();
    for (size_t i = seen_; i < count; ++i) --it;
    for (; it != module_.end(); ++it)
      if (it->getName().starts_with(kInitializer) && !it->isDeclaration()) found.push_back(&*it);
    seen_ = count;
    return found;
  }

 private:
  llvm::Module& module_;
  size_t seen_;
};

/// Initialisers of thread_local variables run on first use, from __tls_init.
bool runs_on_first_use(llvm::Function* function) {
  for (const auto* user : function->users())
    if (const auto* call = llvm::dyn_cast<llvm::CallInst>(user))
      if (call->getFunction()->getName() == "__tls_init") return true;
  for (const auto* user : function->users())
    if (llvm::isa<llvm::GlobalAlias>(user)) return true;
  return false;
}

/// Gives an initialiser the name that statements have, so that stacks and debuggers show the cell for both.
void name_initializer(llvm::Function& function, const std::string& cell_name, const std::string& tag, size_t index) {
  const std::string own_tag = tag + "_i" + std::to_string(index);
  function.setName("_Z" + std::to_string(cell_name.size()) + cell_name + "B" + std::to_string(own_tag.size()) +
                   own_tag + "v");
  if (auto* described = function.getSubprogram()) {
    constexpr unsigned kName = 2, kLinkageName = 3;  // operands of a DISubprogram
    described->replaceOperandWith(kName, llvm::MDString::get(function.getContext(), cell_name));
    described->replaceOperandWith(kLinkageName, llvm::MDString::get(function.getContext(), function.getName()));
  }
}

/// Removes llvm.global_ctors from the module, since loading must run nothing. Returns the functions in it.
std::vector<llvm::Function*> take_constructors(llvm::Module& module) {
  std::vector<llvm::Function*> functions;
  auto* table = module.getGlobalVariable("llvm.global_ctors");
  if (!table) return functions;
  std::vector<std::pair<uint64_t, llvm::Function*>> entries;
  if (auto* array = llvm::dyn_cast<llvm::ConstantArray>(table->getInitializer()))
    for (auto& operand : array->operands()) {
      auto* entry = llvm::cast<llvm::ConstantStruct>(operand);
      if (auto* function = llvm::dyn_cast<llvm::Function>(entry->getOperand(1)->stripPointerCasts()))
        entries.emplace_back(llvm::cast<llvm::ConstantInt>(entry->getOperand(0))->getZExtValue(), function);
    }
  table->eraseFromParent();
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [priority, function] : entries) functions.push_back(function);
  return functions;
}

void add_entry(llvm::Module& module, const std::string& name, const std::vector<llvm::Function*>& steps) {
  auto& context = module.getContext();
  auto* pointer = llvm::PointerType::getUnqual(context);
  auto* number = llvm::Type::getInt32Ty(context);
  auto* table_type = llvm::ArrayType::get(pointer, steps.size());
  std::vector<llvm::Constant*> functions(steps.begin(), steps.end());
  auto* table = new llvm::GlobalVariable(module, table_type, /*isConstant=*/true, llvm::GlobalValue::InternalLinkage,
                                         llvm::ConstantArray::get(table_type, functions), name + "_steps");
  auto* entry_type = llvm::StructType::get(context, {number, number, pointer});
  auto* value = llvm::ConstantStruct::get(
      entry_type, {llvm::ConstantInt::get(number, kCellAbi), llvm::ConstantInt::get(number, steps.size()), table});
  new llvm::GlobalVariable(module, entry_type, /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage, value, name);
}

/// Clang makes a variable of a type without a name (a lambda's, an unnamed struct's) local to the object.
void make_global(llvm::Module& module, llvm::StringRef name) {
  auto* variable = module.getGlobalVariable(name, /*AllowInternal=*/true);
  if (!variable || variable->isDeclaration() || !variable->hasLocalLinkage()) return;
  variable->setLinkage(llvm::GlobalValue::ExternalLinkage);
  variable->setDSOLocal(false);
}

/// Later cells are other objects, which must find what this one defines, `visibility("hidden")` or not. The exception
/// is the function that clang generates to end the process from a noexcept function: it is found by its address.
void show_all(llvm::Module& module) {
  for (llvm::GlobalValue& value : module.global_values()) {
    if (value.hasLocalLinkage() || value.hasDefaultVisibility()) continue;
    if (value.getName() == "__clang_call_terminate" || value.getName() == "__dso_handle") continue;
    value.setVisibility(llvm::GlobalValue::DefaultVisibility);
    value.setDSOLocal(false);
  }
}

/// Makes `symbol` of the cell available as `name`, unless the cell itself uses a library's `name`.
void add_alias(llvm::Module& module, llvm::StringRef symbol, llvm::StringRef name) {
  auto* value = module.getNamedValue(symbol);
  if (!value || value->isDeclaration() || value->isThreadLocal() || module.getNamedValue(name)) return;
  auto* object = llvm::dyn_cast<llvm::GlobalObject>(value);
  if (object) llvm::GlobalAlias::create(llvm::GlobalValue::ExternalLinkage, name, object);
}

/// Destructors are registered with the object's own handle. Other objects get it from the linker's start files.
void define_handle(llvm::Module& module) {
  auto* handle = module.getGlobalVariable("__dso_handle", /*AllowInternal=*/true);
  if (!handle || !handle->isDeclaration()) return;
  handle->setInitializer(llvm::Constant::getNullValue(handle->getValueType()));
  handle->setLinkage(llvm::GlobalValue::InternalLinkage);
  handle->setVisibility(llvm::GlobalValue::DefaultVisibility);
}

}  // namespace

/// Passes on everything before this cell: earlier cells (their code is loaded, so none is generated), declarations from
/// the header, and functions that were not generated in the last module. Virtual tables are generated when they are
/// needed.
void CodeGeneration::catch_up(Generator& generator) {
  resident_.set_catching_up(true);
  for (; generator.known < history_.size(); ++generator.known) {
    const Event event = history_[generator.known];
    const bool of_header = static_cast<const Decl*>(event.decl)->isFromASTFile();
    if (event.kind != Event::vtable || of_header) forward(*generator.code, event);
  }
  for (FunctionDecl* function : generator.not_made) generator.code->HandleTopLevelDecl(DeclGroupRef(function));
  resident_.set_catching_up(false);
}

GeneratedObject CodeGeneration::generate(const ReadCell& cell, const CellDeclarations& declared,
                                         const std::string& cell_name, const std::string& tag, const std::string& entry,
                                         const CodeMode& mode) {
  resident_.set_generating(true);
  Generator& generator = this->generator(mode);
  CodeGenerator& code = *generator.code;
  llvm::Module& module = *code.GetModule();
  module.setModuleIdentifier(cell_name);

  catch_up(generator);
  active_ = &code;
  GeneratedObject made;
  std::vector<llvm::Function*> functions;
  Initializers initializers(module);
  for (size_t i = 0; i < cell.items.size(); ++i) {
    const Item& item = cell.items[i];
    for (const Event& event : item.events) {
      forward(code, event);
      const auto* decl = event.kind == Event::top_level ? static_cast<Decl*>(event.decl) : nullptr;
      for (llvm::Function* function : initializers.fresh()) {
        GeneratedStep step{item.line, i, {}};
        if (const auto* variable = llvm::dyn_cast_or_null<VarDecl>(decl)) step.initialises.push_back(variable);
        functions.push_back(function);
        made.steps.push_back(std::move(step));
      }
    }
    if (item.statement) {
      auto* function = llvm::dyn_cast<llvm::Function>(code.GetAddrOfGlobal(GlobalDecl(item.statement), true));
      if (function) {
        functions.push_back(function);
        made.steps.push_back({item.line, i, {}});
      }
    }
  }
  for (const Event& event : cell.tail) forward(code, event);
  code.HandleTranslationUnit(instance_.getASTContext());
  active_ = nullptr;
  resident_.set_generating(false);
  generator.not_made = resident_.take_not_made();
  if (instance_.getDiagnostics().hasErrorOccurred() || !code.GetModule())
    throw std::runtime_error("clang could not generate code for the cell");
  std::unique_ptr<llvm::Module> owned(code.ReleaseModule());

  // Other initialisers run first: static members of templates, and variables that headers define in each object.
  size_t first = 0;
  for (llvm::Function* function : take_constructors(module)) {
    if (function->getName().starts_with("_GLOBAL__sub_I_")) {
      if (function->use_empty()) function->eraseFromParent();
      continue;
    }
    if (std::find(functions.begin(), functions.end(), function) != functions.end()) continue;
    functions.insert(functions.begin() + static_cast<ptrdiff_t>(first), function);
    made.steps.insert(made.steps.begin() + static_cast<ptrdiff_t>(first), {0, GeneratedStep::kNoItem, {}});
    ++first;
  }
  for (size_t i = 0; i < functions.size();) {
    if (runs_on_first_use(functions[i])) {
      functions.erase(functions.begin() + static_cast<ptrdiff_t>(i));
      made.steps.erase(made.steps.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  for (size_t i = 0; i < functions.size(); ++i)
    if (functions[i]->getName().starts_with(kInitializer)) name_initializer(*functions[i], cell_name, tag, i);
  for (const VarDecl* variable : declared.variables) make_global(module, code.GetMangledName(GlobalDecl(variable)));
  show_all(module);
  for (const auto& [symbol, name] : declared.c_names) add_alias(module, symbol, name);
  add_entry(module, entry, functions);
  define_handle(module);
  made.object = emit(module, mode, *generator.options);
  // This comes last, since the optimizer removes functions that it has inlined everywhere.
  for (const auto& function : module)
    if (!function.isDeclaration() && !function.hasLocalLinkage() && !function.hasAvailableExternallyLinkage())
      made.symbols.push_back(function.getName().str());

  // Other generators receive this cell when they are used next; this one has received it.
  for (const Item& item : cell.items) history_.insert(history_.end(), item.events.begin(), item.events.end());
  history_.insert(history_.end(), cell.tail.begin(), cell.tail.end());
  generator.known = history_.size();
  return made;
}

std::string CodeGeneration::emit(llvm::Module& module, const CodeMode& mode, const CodeGenOptions& options) {
  llvm::SmallVector<char, 0> bytes;
  EmitBackendOutput(instance_.getDiagnostics(), instance_.getHeaderSearchOpts(), options, instance_.getTargetOpts(),
                    instance_.getLangOpts(), instance_.getTarget().getDataLayoutString(), &module, Backend_EmitObj,
                    &instance_.getVirtualFileSystem(), std::make_unique<llvm::raw_svector_ostream>(bytes));
  if (bytes.empty()) throw std::runtime_error("no object file was generated for the cell");
  return std::string(bytes.data(), bytes.size());
}

}  // namespace lockstep::compiler
