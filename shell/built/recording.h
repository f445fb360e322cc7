// Writes down what a session asks for its cells and what it gets: the take of a built file (built_file.h).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shell/built/built_file.h"
#include "shell/built/built_views.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/object_source.h"

namespace lockstep::shell {

/// The file that takes are added to. Objects that are the same are kept once.
class TakeRecorder {
 public:
  explicit TakeRecorder(std::shared_ptr<BuiltFile> file) : file_(std::move(file)) {}

  BuiltFile& file() { return *file_; }
  std::shared_ptr<const BuiltFile> shared() const { return file_; }
  size_t blob(const std::string& bytes);
  /// Notes the versions and the prelude of the first compiler that is ready. Throws StartError.
  void note_ready(const protocol::CompilerReady& ready);

 private:
  std::shared_ptr<BuiltFile> file_;
  std::map<size_t, std::vector<size_t>> by_hash_;
  bool is_ready_ = false;
};

/// Passes everything on, and records it as another session of `take`. Cells that got no answer (a crash, a time limit)
/// are not recorded.
class RecordingSource : public ObjectSource {
 public:
  RecordingSource(std::unique_ptr<ObjectSource> source, TakeRecorder& recorder, Take& take);

  const protocol::CompilerReady& wait_ready() override;
  FromCompiler ask(const protocol::CompilerRequest& request) override;
  void settle(const protocol::Settle& settle) override;
  int64_t definitions() const override { return source_->definitions(); }
  void cancel() override { source_->cancel(); }

 private:
  void add(std::shared_ptr<BuiltStep> step);
  void note_names();

  std::unique_ptr<ObjectSource> source_;
  TakeRecorder& recorder_;
  Take& take_;
  size_t session_;
  std::shared_ptr<BuiltStep> unsettled_, last_;  // of the take
  std::string names_;  // as JSON, known last
  bool names_may_differ_ = false;
};

/// Answers from takes that have been recorded as long as they have what is asked. From then on a compiler answers,
/// which is started for it and given all that was asked before.
class RecordedFirst : public ObjectSource {
 public:
  using MakeCompiler = std::function<std::unique_ptr<ObjectSource>()>;
  RecordedFirst(std::shared_ptr<const BuiltFile> file, size_t session, protocol::CompilerReady ready,
                MakeCompiler make_compiler);

  const protocol::CompilerReady& wait_ready() override { return ready_; }
  FromCompiler ask(const protocol::CompilerRequest& request) override;
  void settle(const protocol::Settle& settle) override;
  int64_t definitions() const override { return definitions_; }
  void cancel() override {
    if (compiler_) compiler_->cancel();
  }

 private:
  void start_compiler();

  std::shared_ptr<const BuiltFile> file_;
  BuiltViews views_;
  protocol::CompilerReady ready_;
  MakeCompiler make_compiler_;
  std::unique_ptr<ObjectSource> compiler_;
  std::vector<protocol::CompilerRequest> past_;  // Compile, Settle, Forget
  std::optional<protocol::Compile> unsettled_;
  int64_t definitions_ = 0;
};

}  // namespace lockstep::shell
