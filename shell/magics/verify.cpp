// %verify: are these the same on every rank? A cell that calls inspect::verify for each expression, on all live ranks.
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/magic_arguments.h"
#include "shell/session_impl.h"

namespace lockstep::shell {
namespace {

const char* const kUsage =
    "%verify EXPR... [--method fingerprint|broadcast|all_gather] [--rtol R] [--atol A] [--ranks SPEC]";

/// As C++ spells it. JSON's escapes are C++'s, too.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string method_of(const std::string& word) {
  if (word == "fingerprint") return "inspect::Method::kFingerprint";
  if (word == "broadcast") return "inspect::Method::kBroadcast";
  if (word == "all_gather") return "inspect::Method::kAllGather";
  throw UsageError("'" + word + "' is no method; methods are fingerprint, broadcast and all_gather");
}

std::string tolerance_of(const std::string& word, const char* option) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value) || value < 0)
    throw UsageError(fmt::format("{} takes a number that is not negative, not '{}'", option, word));
  return fmt::format("{:e}", value);
}

std::string list_of(const RankSet& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "lockstep::RankSet{" + text + "}";
}

CellOutcome verify(MagicCall& call) {
  MagicArguments arguments(call.arguments, kUsage);
  const auto method = arguments.take_value("", "--method");
  const auto rtol = arguments.take_value("", "--rtol");
  const auto atol = arguments.take_value("", "--atol");
  const auto spec = arguments.take_value("", "--ranks");
  const bool files = arguments.take_flag("", "--files");
  const std::vector<std::string> words = arguments.rest();
  if (words.empty()) throw UsageError(std::string("%verify needs what to compare: %verify net; usage: ") + kUsage);

  std::string options;
  if (method) options += ".method(" + method_of(*method) + ")";
  if (rtol) options += ".rtol(" + tolerance_of(*rtol, "--rtol") + ")";
  if (atol) options += ".atol(" + tolerance_of(*atol, "--atol") + ")";
  if ((rtol || atol) && (!method || *method != "all_gather"))
    throw UsageError("--rtol and --atol are for --method all_gather; the other methods compare bit by bit");

  CellSettings settings;
  settings.ranks = spec ? call.session.parse_ranks(*spec) : call.session.live_ranks();
  if (settings.ranks->empty()) {
    call.session.start();
    settings.ranks = call.session.live_ranks();
  }
  std::string code;
  if (files) {
    if (words.size() < 2) throw UsageError("--files needs two files or more: %verify --files rank0.pt rank1.pt");
    // One rank reads them all.
    settings.ranks = RankSet{settings.ranks->ranks().front()};
    for (const std::string& word : words) code += (code.empty() ? "" : ", ") + quoted(word);
    code = "inspect::verify_files({" + code + "}, inspect::VerifyOptions()" + options + ");";
  } else {
    if (spec) options += ".ranks(" + list_of(*settings.ranks) + ")";
    for (const std::string& word : words)
      code += fmt::format("inspect::verify({}, inspect::VerifyOptions().name({}){}); ",
                          word == "rng" ? "inspect::rng()" : word, quoted(word), options);
  }
  const CodeResult result = call.session.run_code(code, settings, call.line);
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kVerify(
    {.name = "verify",
     .usage = kUsage,
     .summary = "are these the same on every rank? Modules, optimizers, tensors, containers, values, rng",
     .help = "Bit by bit; on all live ranks, whatever %rank says. What differs is a finding: which ranks, which "
             "tensors, how "
             "many elements, where, how far apart.\n"
             "rng                    the random number generators\n"
             "--method broadcast     compare all bytes with the lowest rank's\n"
             "--method all_gather    allclose, with --rtol R and --atol A\n"
             "--ranks SPEC           these ranks only\n"
             "--files rank0.pt ...   saved replicas: LibTorch archives, or what Python's torch.save(dict(...)) wrote",
     .line = verify,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
