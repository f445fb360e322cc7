#include "shell/built/built_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "protocol/cell_abi.h"
#include "protocol/checksum.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/installation.h"
#include "protocol/json_fields.h"
#include "protocol/read_json.h"

namespace lockstep::shell {

LOCKSTEP_JSON(Tag, name, value)
LOCKSTEP_JSON(ScriptCell, markdown, title, tags, metadata, text, line)
LOCKSTEP_JSON(BuiltScript, name, cells)

namespace {

// magic, format, reserved, bytes of the description, number of blobs, checksum of all that follows the header
constexpr size_t kHeaderSize = 16 + 4 + 4 + 8 + 8 + 8;
constexpr uint64_t kMostBlobs = 1'000'000;
constexpr int kMostRanks = 4096;

void put(std::string& bytes, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

/// Reads little endian, at `at`, which must be within `bytes`.
uint64_t get(std::string_view bytes, size_t at, int size) {
  uint64_t value = 0;
  for (int i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

/// Holds texts that occur once in the description, however often they are meant: steps of takes, lists of names.
class Pool {
 public:
  size_t add(const nlohmann::json& value) {
    const auto [known, fresh] = indices_.emplace(value.dump(), values_.size());
    if (fresh) values_.push_back(value);
    return known->second;
  }
  nlohmann::json& values() { return values_; }

 private:
  std::map<std::string, size_t> indices_;
  nlohmann::json values_ = nlohmann::json::array();
};

nlohmann::json describe(const BuiltFile& file) {
  Pool steps, names;
  nlohmann::json takes = nlohmann::json::array();
  for (const Take& take : file.takes) {
    nlohmann::json sessions = nlohmann::json::array();
    for (const auto& session : take.sessions) {
      nlohmann::json indices = nlohmann::json::array();
      for (const auto& step : session) {
        nlohmann::json json = {{"request", protocol::encode(step->request)},
                               {"answer", protocol::encode(step->answer)}};
        if (step->settle) json["settle"] = protocol::encode(protocol::CompilerRequest(*step->settle));
        if (step->names) json["names"] = names.add(protocol::encode(protocol::CompilerResponse(*step->names)));
        indices.push_back(steps.add(json));
      }
      sessions.push_back(std::move(indices));
    }
    takes.push_back({{"ranks", take.ranks}, {"sessions", std::move(sessions)}});
  }
  return {{"lockstep", file.versions.lockstep},
          {"protocol", file.versions.protocol},
          {"libtorch", file.versions.libtorch},
          {"compiler", file.versions.compiler},
          {"cell_abi", file.cell_abi},
          {"headers", file.headers},
          {"machine", file.machine},
          {"ranks", file.ranks},
          {"debug_cells", file.debug_cells},
          {"scripts", file.scripts},
          {"prelude", file.prelude},
          {"takes", std::move(takes)},
          {"steps", std::move(steps.values())},
          {"names", std::move(names.values())}};
}

template <typename T, typename Variant>
const T& expect(const Variant& message, const char* what) {
  const T* found = std::get_if<T>(&message);
  if (!found) throw ChannelError(what);
  return *found;
}

/// Checks what followers of the take rely on.
void check_step(const BuiltStep& step, size_t blobs) {
  if (std::holds_alternative<protocol::Forget>(step.request)) return;
  if (std::holds_alternative<protocol::Inspect>(step.request)) {
    expect<protocol::Inspection>(step.answer, "a question has no answer");
    return;
  }
  expect<protocol::Compile>(step.request, "a step is neither of a cell, nor a question, nor forgets names");
  for (const auto& object : expect<protocol::Compiled>(step.answer, "a cell has no answer").objects)
    if (object.frame < 0 || static_cast<size_t>(object.frame) >= blobs) throw ChannelError("an object is missing");
}

BuiltFile read_description(const nlohmann::json& json, std::vector<std::string> blobs) {
  BuiltFile file;
  file.blobs = std::move(blobs);
  json.at("lockstep").get_to(file.versions.lockstep);
  json.at("protocol").get_to(file.versions.protocol);
  json.at("libtorch").get_to(file.versions.libtorch);
  json.at("compiler").get_to(file.versions.compiler);
  json.at("cell_abi").get_to(file.cell_abi);
  json.at("headers").get_to(file.headers);
  json.at("machine").get_to(file.machine);
  file.ranks = json.at("ranks").get<std::optional<int>>();
  json.at("debug_cells").get_to(file.debug_cells);
  json.at("scripts").get_to(file.scripts);
  file.prelude = json.at("prelude").get<size_t>();
  if (file.prelude >= file.blobs.size()) throw ChannelError("the prelude is missing");

  std::vector<protocol::Names> names;
  for (const auto& each : json.at("names"))
    names.push_back(expect<protocol::Names>(protocol::decode_response(each), "a list of names is none"));
  BuiltSteps steps;
  for (const auto& each : json.at("steps")) {
    BuiltStep step{.request = protocol::decode_request(each.at("request")),
                   .answer = protocol::decode_response(each.at("answer")),
                   .settle = {},
                   .names = {}};
    if (each.contains("settle"))
      step.settle = expect<protocol::Settle>(protocol::decode_request(each.at("settle")), "a settlement is none");
    if (each.contains("names")) step.names = names.at(each.at("names").get<size_t>());
    check_step(step, file.blobs.size());
    steps.push_back(std::make_shared<const BuiltStep>(std::move(step)));
  }
  for (const auto& each : json.at("takes")) {
    Take take;
    each.at("ranks").get_to(take.ranks);
    if (take.ranks < 1 || take.ranks > kMostRanks) throw ChannelError("a take has no ranks");
    for (const auto& session : each.at("sessions")) {
      auto& indices = take.sessions.emplace_back();
      for (const auto& index : session) indices.push_back(steps.at(index.get<size_t>()));
    }
    file.takes.push_back(std::move(take));
  }
  return file;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why, const std::string& fix) {
  throw UsageError(path + ": " + why + ": " + fix);
}

std::string machine() {
  utsname name = {};
  return ::uname(&name) == 0 ? name.machine : "";
}

}  // namespace

std::string serialize(const BuiltFile& file) {
  std::string description;
  try {
    description = describe(file).dump();
  } catch (const nlohmann::json::exception&) {
    throw UsageError("a cell has bytes that are not UTF-8, which a built file can't hold: save the script as UTF-8");
  }
  std::string rest;
  for (const std::string& blob : file.blobs) put(rest, blob.size(), 8);
  rest += description;
  for (const std::string& blob : file.blobs) rest += blob;
  std::string bytes(kBuiltMagic);
  put(bytes, kBuiltFormat, 4);
  put(bytes, 0, 4);
  put(bytes, description.size(), 8);
  put(bytes, file.blobs.size(), 8);
  put(bytes, protocol::checksum(rest), 8);
  return bytes + rest;
}

BuiltFile parse_built_file(std::string_view bytes, const std::string& path) {
  const std::string again = "build it again, or copy it again";
  const std::string_view known = kBuiltMagic.substr(0, std::min(bytes.size(), kBuiltMagic.size()));
  if (bytes.empty() || !bytes.starts_with(known))
    refuse(path, "it is no file of lockstep build", "name one, or a session script");
  if (bytes.size() < kHeaderSize) refuse(path, "it is cut off within its header", again);
  if (const uint64_t format = get(bytes, 16, 4); format != kBuiltFormat)
    refuse(path, fmt::format("it has format {}, and this Lockstep reads format {}", format, kBuiltFormat),
           "build it again with this Lockstep");
  const uint64_t description = get(bytes, 24, 8), count = get(bytes, 32, 8), sum = get(bytes, 40, 8);
  const std::string_view rest = bytes.substr(kHeaderSize);
  if (count > kMostBlobs || count * 8 > rest.size() || description > rest.size() - count * 8)
    refuse(path, "it is cut off, or its header is damaged", again);
  uint64_t left = rest.size() - count * 8 - description;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t size = get(rest, i * 8, 8);
    if (size > left) refuse(path, "it is cut off, or its header is damaged", again);
    left -= size;
  }
  if (left != 0) refuse(path, "there is something after its end", again);
  if (protocol::checksum(rest) != sum) refuse(path, "it is damaged: its checksum is another", again);

  std::vector<std::string> blobs;
  size_t at = count * 8 + description;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t size = get(rest, i * 8, 8);
    blobs.emplace_back(rest.substr(at, size));
    at += size;
  }
  try {
    return read_description(protocol::read_json(rest.substr(count * 8, description)), std::move(blobs));
  } catch (const nlohmann::json::exception& error) {
    refuse(path, std::string("its description is damaged (") + error.what() + ")", again);
  } catch (const ChannelError& error) {
    refuse(path, std::string("its description is damaged (") + error.what() + ")", again);
  } catch (const std::out_of_range&) {
    refuse(path, "its description is damaged (it refers to what is not there)", again);
  }
}

bool is_built_file(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  std::ifstream file(path, std::ios::binary);
  char begin[kBuiltMagic.size()] = {};
  file.read(begin, sizeof begin);
  return static_cast<size_t>(file.gcount()) == sizeof begin && std::string_view(begin, sizeof begin) == kBuiltMagic;
}

void check_versions(const BuiltFile& file, const std::string& path) {
  const auto compare = [&](const std::string& theirs, const std::string& ours, const char* what, const char* fix) {
    if (theirs != ours) refuse(path, fmt::format("it was built for {} {}, and this is {}", what, theirs, ours), fix);
  };
  const char* const kSame = "build it again with this version, or run it with that one";
  compare(file.versions.lockstep, kVersion, "Lockstep", kSame);
  compare(std::to_string(file.versions.protocol), std::to_string(kProtocolVersion), "protocol", kSame);
  compare(std::to_string(file.cell_abi), std::to_string(kCellAbi), "cell ABI", kSame);
  compare(file.machine, machine(), "machines of type", "build it on a machine of this type");
  compare(file.versions.libtorch, protocol::libtorch_version(), "LibTorch",
          "build it with a Lockstep that uses this LibTorch, or run it with one that uses that LibTorch");
  if (file.headers != protocol::header_digest())
    refuse(path, "it was built with other headers of Lockstep " + std::string(kVersion) + " than this Lockstep has",
           "build it again with the Lockstep that is to run it");
}

BuiltFile read_built_file(const std::string& path) {
  const auto bytes = protocol::read_file(path);
  if (!bytes || bytes->empty())
    refuse(path, std::string("it can't be read (") + (bytes ? "it is empty" : std::strerror(errno)) + ")",
           "check its name and its permissions");
  BuiltFile built = parse_built_file(*bytes, path);
  check_versions(built, path);
  return built;
}

void set_versions(BuiltFile& file, const Versions& compiler) {
  file.versions = compiler;
  file.cell_abi = kCellAbi;
  file.headers = protocol::header_digest();
  file.machine = machine();
}

void write_built_file(const BuiltFile& file, const std::string& path) {
  if (const int error = protocol::replace_file(path, serialize(file), 0666))
    throw UsageError(path + " can't be written (" + std::strerror(error) + "): choose another folder, or make room");
}

}  // namespace lockstep::shell
