#include "compiler/front_end/front_end.h"

#include <clang/Basic/Version.h>
#include <clang/Frontend/MultiplexConsumer.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <clang/Sema/SemaConsumer.h>
#include <llvm/Support/TargetSelect.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "compiler/front_end/clang_headers.h"
#include "compiler/front_end/user_headers.h"
#include "protocol/error.h"

namespace lockstep::compiler {

using namespace clang;
namespace fs = std::filesystem;

namespace {

/// Returns the path of the newest GCC's <omp.h> for this machine, or one that does not exist. Its folder is not
/// searched, because some of Clang's headers include a next one of their name.
std::string gcc_omp_header() {
  std::pair<int, std::string> newest{0, "/usr/lib/gcc/omp.h"};
  std::error_code error;
  for (fs::directory_iterator target("/usr/lib/gcc", error), end; !error && target != end; target.increment(error)) {
    const std::string name = target->path().filename();
    if (!name.starts_with("x86_64-") || name.find("linux") == name.npos) continue;
    std::error_code failed;
    for (fs::directory_iterator version(target->path(), failed); !failed && version != end; version.increment(failed))
      if (const auto header = version->path() / "include/omp.h"; fs::exists(header, failed))
        newest = std::max(newest, {std::atoi(version->path().filename().c_str()), header.string()});
  }
  return newest.second;
}

}  // namespace

std::vector<std::string> compile_flags(const Options& options) {
  return {"-std=c++20", "-O0", "-fPIC", "-gline-tables-only", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DUSE_DISTRIBUTED",
          "-I" + options.include_root, "-isystem" + options.libtorch + "/include",
          "-isystem" + options.libtorch + "/include/torch/csrc/api/include", "-resource-dir=" + options.resource_dir,
          "-Wno-unused-value", "-Wunused-result", "-fparse-all-comments", "-Xclang", "-fincremental-extensions",
          // <omp.h>; for directives see compiler/parser/openmp.h.
          "-isystem" + options.include_root + "/worker/cell/openmp",
          "-DLOCKSTEP_GCC_OMP_H=\"" + gcc_omp_header() + "\"",
          // <source_location>, where the machine's C++ library has none.
          "-idirafter" + options.include_root + "/worker/cell/older",
          // An installed <lockstep/dist.h> lies one folder above the others. Last, since the prefix may be /usr.
          "-idirafter" + options.include_root + "/.."};
}

std::string header_text(const Options& options) {
  // Cells test _OPENMP. LibTorch's headers are read without it, since all cells share their code.
  return std::string("#include \"worker/cell/cell.h\"\n#include \"worker/cell/warm_prelude.h\"\n") +
         (options.for_python_job ? "#include \"python/cells/py.h\"\n" : "") + "#define _OPENMP 201511\n";
}

namespace {

std::unique_ptr<CompilerInstance> make_instance(const Options& options, const std::vector<std::string>& more,
                                                DiagnosticConsumer* diagnostics,
                                                llvm::IntrusiveRefCntPtr<llvm::vfs::FileSystem> files = nullptr) {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  (void)initialized;
  auto instance = std::make_unique<CompilerInstance>();
  instance->createDiagnostics(diagnostics, /*ShouldOwnClient=*/false);
  std::vector<std::string> words = {"clang++"};
  for (auto& flag : compile_flags(options)) words.push_back(std::move(flag));
  words.insert(words.end(), more.begin(), more.end());
  std::vector<const char*> arguments;
  for (const auto& word : words) arguments.push_back(word.c_str());
  CreateInvocationOptions invocation_options;
  invocation_options.Diags = &instance->getDiagnostics();
  auto invocation = createInvocation(arguments, std::move(invocation_options));
  if (!invocation) throw StartError("clang rejects the flags with which cells are compiled");
  instance->setInvocation(std::move(invocation));
  instance->getFrontendOpts().DisableFree = true;
  // compiler/diagnostics/ renders the diagnostics. After how many errors clang stops is for clang to decide.
  instance->createDiagnostics(diagnostics, /*ShouldOwnClient=*/false);
  if (!instance->createTarget()) throw StartError("clang was built without code generation for this machine");
  instance->createFileManager(std::move(files));
  instance->createSourceManager(instance->getFileManager());
  return instance;
}

// The oldest release of the C++ library that has what cells use of C++20.
constexpr int kOldestGcc = 10;

/// Returns the N of "# define _GLIBCXX_RELEASE N" in bits/c++config.h of that folder; 0 where there is none.
int release_in(const fs::path& folder) {
  std::ifstream file(folder / "bits/c++config.h");
  constexpr std::string_view kDefine = "_GLIBCXX_RELEASE ";
  for (std::string line; std::getline(file, line);)
    if (const size_t at = line.find(kDefine); line.starts_with('#') && at != line.npos)
      return std::atoi(line.c_str() + at + kDefine.size());
  return 0;
}

/// Instantiates in the header what its virtual tables need. Otherwise clang does that in each translation unit that
/// reads the header, which takes two seconds.
class DefineTables : public SemaConsumer {
 public:
  void InitializeSema(Sema& sema) override { sema_ = &sema; }
  void ForgetSema() override { sema_ = nullptr; }
  void HandleTranslationUnit(ASTContext&) override {
    if (!sema_) return;
    while (sema_->DefineUsedVTables()) sema_->PerformPendingInstantiations();
    sema_->PerformPendingInstantiations();
  }

 private:
  Sema* sema_ = nullptr;
};

class BuildHeader : public GeneratePCHAction {
 protected:
  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance& instance, llvm::StringRef file) override {
    auto writer = GeneratePCHAction::CreateASTConsumer(instance, file);
    if (!writer) return nullptr;
    std::vector<std::unique_ptr<ASTConsumer>> consumers;
    consumers.push_back(std::make_unique<DefineTables>());
    consumers.push_back(std::move(writer));
    return std::make_unique<MultiplexConsumer>(std::move(consumers));
  }
};

}  // namespace

std::string standard_headers_problem(const Options& options) {
  IgnoringDiagConsumer ignored;
  auto instance = make_instance(options, {"-xc++", "cells.cpp"}, &ignored);
  bool has_c = false;
  int release = 0;
  std::error_code error;
  for (const auto& entry : instance->getHeaderSearchOpts().UserEntries) {
    if (fs::exists(entry.Path + "/features.h", error)) has_c = true;
    if (release == 0) release = release_in(entry.Path);
  }
  const std::string fix = "install g++ " + std::to_string(kOldestGcc) +
                          " or newer, whose headers cells include (Debian: apt-get install g++; RHEL: dnf install "
                          "gcc-c++, or gcc-toolset-12-gcc-c++)";
  if (release == 0) return "no headers of the C++ library were found: " + fix;
  if (release < kOldestGcc)
    return "the newest headers of the C++ library on this machine are of g++ " + std::to_string(release) + ": " + fix;
  if (!has_c)
    return "no headers of the C library were found: install them (Debian: apt-get install libc6-dev; RHEL: dnf install "
           "glibc-devel)";
  return "";
}

void build_header(const Options& options, const std::string& path) {
  std::string words;
  llvm::raw_string_ostream stream(words);
  TextDiagnosticPrinter printer(stream, new DiagnosticOptions());
  auto instance = make_instance(options, {"-fpch-instantiate-templates", "-xc++-header", "lockstep_cells.h"}, &printer);
  auto& preprocessor_options = instance->getPreprocessorOpts();
  // The folder of Lockstep's headers is searched first for what the file includes, not the user's directory.
  const std::string name = options.include_root + "/lockstep_cells.h";
  preprocessor_options.addRemappedFile(name,
                                       llvm::MemoryBuffer::getMemBufferCopy(header_text(options), name).release());
  auto& front_end = instance->getFrontendOpts();
  front_end.ProgramAction = frontend::GeneratePCH;
  front_end.OutputFile = path;
  front_end.Inputs = {FrontendInputFile(name, InputKind(Language::CXX).getHeader())};
  instance->getLangOpts().PCHInstantiateTemplates = true;
  BuildHeader action;
  const bool done = instance->ExecuteAction(action);
  if (!done || instance->getDiagnostics().hasErrorOccurred())
    throw StartError("the precompiled header of cells could not be built:\n" + words);
}

std::unique_ptr<CompilerInstance> read_header(const Options& options, const std::string& path,
                                              DiagnosticConsumer* diagnostics, std::shared_ptr<FileVersions> versions) {
  auto instance = make_instance(options, {"-xc++", "cells.cpp"}, diagnostics, versioned_files(std::move(versions)));
  auto& sources = instance->getSourceManager();
  sources.setMainFileID(sources.createFileID(llvm::MemoryBuffer::getMemBuffer("", "cells.cpp")));
  instance->createPreprocessor(TU_Incremental);
  instance->getPreprocessor().enableIncrementalProcessing();
  diagnostics->BeginSourceFile(instance->getLangOpts(), &instance->getPreprocessor());
  instance->createASTContext();
  instance->createPCHExternalASTSource(path, DisableValidationForModuleKind::All,
                                       /*AllowPCHWithCompilerErrors=*/false, nullptr, false);
  if (!instance->getASTContext().getExternalSource())
    throw StartError("the precompiled header " + path + " can't be read");
  return instance;
}

}  // namespace lockstep::compiler
