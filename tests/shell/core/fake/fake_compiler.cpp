// lockstep-compiler for tests of the shell: hands the text on as the object. FAKE_COMPILER: fail, old, die, wait, build
// (a step that takes long) at the start.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>

#include <cstdlib>
#include <cstring>
#include <string>

#include "fake_cell.h"
#include "protocol/compiler_messages.h"
#include "protocol/pipe_channel.h"

using namespace lockstep;
using namespace lockstep::protocol;

namespace {

int channel = -1;

void answer(const CompilerResponse& response, std::vector<std::string> frames = {}) {
  send_message(channel, {encode(response), std::move(frames)});
}

void compile(const Compile& request) {
  Compiled compiled;
  compiled.cell = request.cell;
  compiled.status = CompileStatus::ok;
  compiled.ms = 1;
  for (const auto& command : fake::commands_of(request.text, -1)) {
    if (command.name == "crash") ::raise(SIGKILL);
    if (command.name == "stop") ::raise(SIGSTOP);
    if (command.name == "end") ::kill(std::stoi(command.text), SIGKILL);
    if (command.name == "halt") ::kill(std::stoi(command.text), SIGSTOP);
    if (command.name == "late" || command.name == "crash_child") {
      compiled.status = command.name == "late" ? CompileStatus::timeout : CompileStatus::crash;
      const std::string words = command.name == "late" ? "compiling the cell took longer than 1 s and was given up"
                                                       : "the compiler crashed on this cell (Segmentation fault)";
      compiled.diagnostics.push_back(
          {.severity = DiagnosticSeverity::error, .line = 0, .column = 0, .file = {}, .message = words});
      compiled.rendered = "error: " + words + "\n";
    }
    if (command.name == "slow") {
      if (!command.text.empty())
        ::close(::open(command.text.c_str(), O_WRONLY));  // a pipe: says that the compile has begun
      const auto next = receive_message(channel);
      if (next && std::holds_alternative<Cancel>(decode_request(next->header)))
        compiled.status = CompileStatus::cancelled;
    }
    if (command.name == "error") {
      compiled.status = CompileStatus::error;
      compiled.diagnostics.push_back({.severity = DiagnosticSeverity::error,
                                      .line = command.line,
                                      .column = 1,
                                      .file = {},
                                      .message = command.text});
      compiled.rendered = "line " + std::to_string(command.line) + ": " + command.text;
    }
  }
  std::vector<std::string> frames;
  if (compiled.status == CompileStatus::ok) {
    CompiledObject object;
    object.ranks = request.ranks;
    object.name = "cell_" + std::to_string(request.cell) + ".so";
    object.entry = "entry";
    object.source = request.text;
    for (const auto& command : fake::commands_of(request.text, -1)) object.steps.push_back({command.line, {}});
    compiled.objects.push_back(object);
    frames.push_back(request.text);
  }
  answer(compiled, std::move(frames));
}

/// Names that begin with the word at the offset; for the word `echo_` the text itself. `f(` has two overloads.
Completions complete(const Complete& request) {
  const std::string text = request.text.substr(0, request.offset);
  size_t begin = text.size();
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_')) --begin;
  const std::string word = text.substr(begin);
  Completions result{static_cast<int64_t>(begin), request.offset, {}, {}};
  if (word == "echo_") result.completions.push_back({request.text, "variable", ""});
  for (const auto& [name, detail] : {std::pair("print", "void print(std::string text)"),
                                     {"print_err", "void print_err()"},
                                     {"value", "int value"},
                                     {"throw", ""}})
    if (!request.signatures_only && std::string(name).starts_with(word))
      result.completions.push_back({name, "function", detail});
  const size_t open = text.rfind("f(");
  if (open != std::string::npos && text.find(')', open) == std::string::npos) {
    const bool second = text.find(',', open) != std::string::npos;
    result.signatures.push_back({"int f(int a, int b)", {{6, 11}, {13, 18}}, second ? 1 : 0});
    result.signatures.push_back({"int f(char c)", {{6, 12}}, second ? -1 : 0});
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--channel-fd") == 0) channel = std::atoi(argv[i + 1]);
  const char* chosen = std::getenv("FAKE_COMPILER");
  const std::string how = chosen ? chosen : "";
  if (how == "die") {
    (void)!::write(STDERR_FILENO, "no room for me\n", 15);
    return 7;
  }
  if (how == "fail") {
    answer(CompilerFailed{"the precompiled header is damaged"});
    return 1;
  }
  if (how == "build")
    answer(CompilerProgress{.message = "building what takes long",
                            .step = StartStep{.what = "the headers", .number = 1, .count = 2, .last_s = 31}});
  if (how == "wait" || how == "build")
    while (receive_message(channel)) {
    }
  CompilerReady ready;
  ready.versions.libtorch = "2.11.0";
  ready.versions.compiler = "fake";
  if (how == "old") ready.versions.lockstep = "0.0.1";
  ready.prelude = "/none";
  answer(ready);
  std::vector<Name> names;
  while (auto message = receive_message(channel)) {
    const auto request = decode_request(message->header);
    if (const auto* m = std::get_if<Compile>(&request)) {
      compile(*m);
      names.push_back({.name = m->text, .kind = "cell", .type = {}, .cell = m->cell, .ranks = m->ranks});
    } else if (const auto* m = std::get_if<Settle>(&request)) {
      if (!m->loaded && !names.empty()) names.pop_back();
      answer(Settled{});
    } else if (std::holds_alternative<Forget>(request)) {
      names.clear();
      answer(Settled{});
    } else if (std::holds_alternative<ListNames>(request)) {
      answer(Names{names});
    } else if (const auto* m = std::get_if<Complete>(&request)) {
      answer(complete(*m));
    } else if (const auto* m = std::get_if<Inspect>(&request)) {
      answer(Inspection{.found = !m->expression.starts_with("no_"),
                        .type = "Fake",
                        .declaration = "Fake " + m->expression,
                        .source = "Fake " + m->expression + "{};",
                        .cell = 1});
    }
  }
  return 0;
}
