#include "shell/built/recording.h"

#include <utility>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/built/built_objects.h"

namespace lockstep::shell {

// ---- The file -------------------------------------------------------------------------------------------------------

size_t TakeRecorder::blob(const std::string& bytes) {
  auto& known = by_hash_[std::hash<std::string>()(bytes)];
  for (const size_t index : known)
    if (file_->blobs[index] == bytes) return index;
  known.push_back(file_->blobs.size());
  file_->blobs.push_back(bytes);
  return known.back();
}

void TakeRecorder::note_ready(const protocol::CompilerReady& ready) {
  if (std::exchange(is_ready_, true)) return;
  const auto prelude = protocol::read_file(ready.prelude);
  if (!prelude || prelude->empty()) throw StartError("the prelude of cells can't be read: " + ready.prelude);
  set_versions(*file_, ready.versions);
  file_->prelude = blob(*prelude);
}

// ---- What is asked of it, and what it answers -----------------------------------------------------------------------

RecordingSource::RecordingSource(std::unique_ptr<ObjectSource> source, TakeRecorder& recorder, Take& take)
    : source_(std::move(source)), recorder_(recorder), take_(take), session_(take.sessions.size()) {
  take_.sessions.emplace_back();
}

const protocol::CompilerReady& RecordingSource::wait_ready() {
  const auto& ready = source_->wait_ready();
  recorder_.note_ready(ready);
  return ready;
}

void RecordingSource::add(std::shared_ptr<BuiltStep> step) {
  last_ = step;
  take_.sessions[session_].push_back(std::move(step));
}

/// Notes the names after the last step, where it may have changed them.
void RecordingSource::note_names() {
  if (!std::exchange(names_may_differ_, false)) return;
  const FromCompiler answer = source_->ask(protocol::ListNames{});
  const auto* names = std::get_if<protocol::Names>(&answer.response);
  if (!names) return;
  std::string text = protocol::encode(answer.response).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text == names_) return;
  names_ = std::move(text);
  last_->names = *names;
}

FromCompiler RecordingSource::ask(const protocol::CompilerRequest& request) {
  note_names();
  unsettled_.reset();
  FromCompiler answer = source_->ask(request);
  auto step = std::make_shared<BuiltStep>();
  step->request = request;
  if (auto* cell = std::get_if<protocol::Compile>(&step->request)) {
    const auto& compiled = std::get<protocol::Compiled>(answer.response);
    if (compiled.status != CompileStatus::ok && compiled.status != CompileStatus::error) return answer;
    // It is of this machine, or known to the compiler only.
    cell->directory.clear();
    cell->repeats.clear();
    cell->time_limit_s = 0;
    protocol::Compiled kept = compiled;
    kept.ms = 0;
    for (auto& object : kept.objects)
      object.frame = static_cast<int64_t>(recorder_.blob(answer.frames.at(static_cast<size_t>(object.frame))));
    step->answer = std::move(kept);
    if (compiled.status == CompileStatus::ok) unsettled_ = step;
    add(std::move(step));
  } else if (std::holds_alternative<protocol::Forget>(request)) {
    step->answer = answer.response;
    add(std::move(step));
    names_may_differ_ = true;
  } else if (std::holds_alternative<protocol::Inspect>(request)) {
    step->answer = answer.response;
    add(std::move(step));
  }
  return answer;
}

void RecordingSource::settle(const protocol::Settle& settle) {
  if (unsettled_ && std::get<protocol::Compile>(unsettled_->request).cell == settle.cell) {
    unsettled_->settle = settle;
    names_may_differ_ = settle.loaded;
    unsettled_.reset();
  }
  source_->settle(settle);
}

// ---- Takes that begin like others -----------------------------------------------------------------------------------

RecordedFirst::RecordedFirst(std::shared_ptr<const BuiltFile> file, size_t session, protocol::CompilerReady ready,
                             MakeCompiler make_compiler)
    : file_(file),
      views_(std::move(file), session),
      ready_(std::move(ready)),
      make_compiler_(std::move(make_compiler)) {}

void RecordedFirst::start_compiler() {
  compiler_ = make_compiler_();
  compiler_->wait_ready();
  for (const auto& request : past_) {
    if (const auto* settle = std::get_if<protocol::Settle>(&request))
      compiler_->settle(*settle);
    else
      compiler_->ask(request);
  }
}

FromCompiler RecordedFirst::ask(const protocol::CompilerRequest& request) {
  const auto* cell = std::get_if<protocol::Compile>(&request);
  const auto* forget = std::get_if<protocol::Forget>(&request);
  FromCompiler answer;
  bool is_answered = false;
  unsettled_.reset();
  if (!compiler_) {
    if (cell) {
      if (auto compiled = views_.compile(*cell)) {
        answer = with_frames(std::move(*compiled), *file_);
        is_answered = true;
      }
    } else if (forget) {
      is_answered = views_.forget(*forget);
      answer.response = protocol::Settled{};
    } else if (std::holds_alternative<protocol::ListNames>(request)) {
      answer.response = views_.names();
      is_answered = true;
    } else if (const auto* question = std::get_if<protocol::Inspect>(&request)) {
      const auto inspection = views_.inspect(*question);
      if (inspection) answer.response = *inspection;
      is_answered = inspection.has_value();
    }
  }
  if (!is_answered) {
    if (!compiler_) start_compiler();
    answer = compiler_->ask(request);
  }
  if (cell) {
    const auto& compiled = std::get<protocol::Compiled>(answer.response);
    if (compiled.status == CompileStatus::ok) {
      unsettled_ = *cell;
      if (!compiled.repeatable) ++definitions_;
    }
  } else if (forget) {
    past_.push_back(request);
    ++definitions_;
  }
  return answer;
}

void RecordedFirst::settle(const protocol::Settle& settle) {
  if (unsettled_ && settle.loaded) {
    past_.emplace_back(*std::exchange(unsettled_, std::nullopt));
    past_.emplace_back(settle);
  }
  if (compiler_)
    compiler_->settle(settle);
  else
    views_.settle(settle);
}

}  // namespace lockstep::shell
