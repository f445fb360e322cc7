#include "shell/commands/clangd_proxy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "protocol/error.h"
#include "protocol/read_json.h"
#include "protocol/whole_number.h"

namespace lockstep::shell {

using nlohmann::json;

namespace {

constexpr const char* kStatements = "lockstep_statements_";
constexpr std::string_view kScript = "lockstep_script_";

bool is_position(const json& value) {
  return value.is_object() && value.contains("line") && value.contains("character") &&
         value["line"].is_number_integer() && value["character"].is_number_integer();
}

std::string text_at(const json& value, const json::json_pointer& path) {
  return value.contains(path) && value[path].is_string() ? value[path].get<std::string>() : "";
}

/// Returns a number of lines or characters. More than any document has is as far as its end.
int counted(int64_t value) {
  constexpr int64_t kMost = 1 << 28;
  return static_cast<int>(std::clamp<int64_t>(value, 0, kMost));
}

/// Returns where the name of a namespace that translation has added ends; npos where none begins.
size_t end_of_script_name(const std::string& text, size_t at) {
  if (text.compare(at, kScript.size(), kScript) != 0) return std::string::npos;
  const size_t number = at + kScript.size();
  const size_t end = std::min(text.find_first_not_of("0123456789", number), text.size());
  return end > number ? end : std::string::npos;
}

EditorPosition position_of(const json& value) {
  return {counted(value["line"].get<int64_t>()), counted(value["character"].get<int64_t>())};
}

}  // namespace

std::optional<json> take_editor_message(std::string& bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n", kLength = "Content-Length:";
  constexpr size_t kLongest = size_t{1} << 30;
  const size_t end = bytes.find(kEnd), length = bytes.find(kLength);
  if (end == std::string::npos) return std::nullopt;
  if (length > end) throw ChannelError("a message without Content-Length arrived");
  const size_t number = bytes.find_first_not_of(' ', length + kLength.size()), begin = end + kEnd.size();
  const auto size = protocol::whole_number<size_t>(
      std::string_view(bytes).substr(number, bytes.find('\r', number) - number), 0, kLongest);
  if (!size) throw ChannelError("a message whose Content-Length is no number, or too large, arrived");
  if (bytes.size() - begin < *size) return std::nullopt;
  json message = protocol::read_json(std::string_view(bytes).substr(begin, *size));
  bytes.erase(0, begin + *size);
  if (message.is_discarded()) throw ChannelError("a message that is not JSON arrived");
  return message;
}

std::string path_of_uri(const std::string& uri) {
  constexpr std::string_view kFile = "file://";
  if (!uri.starts_with(kFile)) return "";
  std::string path;
  for (size_t i = kFile.size(); i < uri.size(); ++i) {
    if (uri[i] == '%' && i + 2 < uri.size()) {
      path += static_cast<char>(std::strtol(uri.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      path += uri[i];
    }
  }
  return path;
}

std::string without_script_names(std::string text) {
  if (text.find(kScript) == std::string::npos) return text;
  constexpr std::string_view kScope = "// In ", kNamespace = "namespace ", kWithin = "::";
  const auto has = [&](size_t at, std::string_view what) { return text.compare(at, what.size(), what) == 0; };
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    if (has(at, kScope)) {  // a line such as "// In namespace lockstep_script_0::lockstep_script_1"
      size_t name = at + kScope.size();
      if (has(name, kNamespace)) name += kNamespace.size();
      size_t last = end_of_script_name(text, name);
      for (size_t next = last; next != std::string::npos && has(next, kWithin);) {
        next = end_of_script_name(text, next + kWithin.size());
        last = next;
      }
      if (last != std::string::npos && has(last, "\n")) end = last + 1;
    } else if (const size_t last = end_of_script_name(text, at); last != std::string::npos && has(last, kWithin)) {
      end = last + kWithin.size();
    }
    if (end == at)
      kept += text[at++];
    else
      at = end;
  }
  return kept;
}

const EditorText* ClangdProxy::script_of(const std::string& uri) const {
  const auto found = scripts_.find(uri);
  return found == scripts_.end() ? nullptr : &found->second;
}

void ClangdProxy::set_text(const std::string& uri, const std::string& text, Messages& out) {
  const bool was_script = scripts_.erase(uri) > 0;
  if (!is_session_script(text)) return;
  scripts_.emplace(uri, EditorText(text, MagicRegistry::instance()));
  const std::string path = path_of_uri(uri);
  if (was_script || path.empty()) return;
  json command = json::array({"clang++"});
  for (const std::string& flag : flags_) command.push_back(flag);
  command.push_back(path);
  json parameters;
  parameters["settings"]["compilationDatabaseChanges"][path] = {
      {"workingDirectory", std::filesystem::path(path).parent_path().string()}, {"compilationCommand", command}};
  out.to_clangd.push_back({{"jsonrpc", "2.0"}, {"method", "workspace/didChangeConfiguration"}, {"params", parameters}});
}

ClangdProxy::Messages ClangdProxy::from_editor(json message) {
  Messages out;
  const std::string method = text_at(message, "/method"_json_pointer);
  const std::string uri = text_at(message, "/params/textDocument/uri"_json_pointer);
  if (method == "textDocument/didOpen") {
    json& text = message["params"]["textDocument"]["text"];
    set_text(uri, text.is_string() ? text.get<std::string>() : "", out);
    if (const EditorText* script = script_of(uri)) text = script->text();
  } else if (method == "textDocument/didChange") {
    // Each change has the complete text: from_clangd() announces that.
    json& changes = message["params"]["contentChanges"];
    if (changes.is_array() && !changes.empty() && changes.back().contains("text") &&
        !changes.back().contains("range")) {
      set_text(uri, changes.back()["text"].get<std::string>(), out);
      if (const EditorText* script = script_of(uri)) changes = json::array({{{"text", script->text()}}});
    }
  } else if (method == "textDocument/didClose") {
    scripts_.erase(uri);
  } else if (script_of(uri)) {
    if (method.starts_with("textDocument/") && method.find("ormatting") != std::string::npos) {
      // Clangd would format what stands for the script.
      out.to_editor.push_back({{"jsonrpc", "2.0"}, {"id", message["id"]}, {"result", nullptr}});
      return out;
    }
    map_positions(message["params"], uri, /*to_file=*/true);
  } else if (message.contains("params")) {
    map_positions(message["params"], "", /*to_file=*/true);
  }
  if (message.contains("id") && !method.empty()) requests_[message["id"].dump()] = {method, uri};
  out.to_clangd.push_back(std::move(message));
  return out;
}

ClangdProxy::Messages ClangdProxy::from_clangd(json message) {
  Messages out;
  const std::string method = text_at(message, "/method"_json_pointer);
  if (method == "textDocument/publishDiagnostics") {
    const std::string uri = text_at(message, "/params/uri"_json_pointer);
    if (script_of(uri)) {
      json kept = json::array();
      for (json& each : message["params"]["diagnostics"]) {
        // Includes stand at the head of the file, and all cells share them.
        if (text_at(each, "/code"_json_pointer) == "unused-includes") continue;
        kept.push_back(std::move(each));
      }
      message["params"]["diagnostics"] = std::move(kept);
      map_positions(message["params"], uri, /*to_file=*/false);
    }
  } else if (!method.empty()) {
    if (message.contains("params")) map_positions(message["params"], "", /*to_file=*/false);
  } else if (const auto request = requests_.find(message.value("id", json()).dump()); request != requests_.end()) {
    const auto [asked, uri] = request->second;
    requests_.erase(request);
    if (asked == "initialize" && message.contains("/result/capabilities"_json_pointer)) {
      json& capabilities = message["result"]["capabilities"];
      constexpr int kFullText = 1;
      if (capabilities["textDocumentSync"].is_object())
        capabilities["textDocumentSync"]["change"] = kFullText;
      else
        capabilities["textDocumentSync"] = kFullText;
      if (capabilities.contains("semanticTokensProvider")) {
        capabilities["semanticTokensProvider"]["full"] = true;
        capabilities["semanticTokensProvider"]["range"] = false;
      }
    } else if (message.contains("result")) {
      const EditorText* script = script_of(uri);
      json& result = message["result"];
      if (script && asked == "textDocument/semanticTokens/full" && result.contains("data"))
        map_tokens(result["data"], *script);
      else if (script && asked == "textDocument/documentSymbol" && result.is_array())
        result = real_symbols(result);
      map_positions(result, uri, /*to_file=*/false);
    }
  }
  out.to_editor.push_back(std::move(message));
  return out;
}

/// Maps all positions in `value`, which is about the document `uri` as far as it does not name another one.
void ClangdProxy::map_positions(json& value, std::string uri, bool to_file) const {
  if (value.is_array()) {
    for (json& each : value) map_positions(each, uri, to_file);
    return;
  }
  if (value.is_string() && !to_file) value = without_script_names(value.get<std::string>());
  if (!value.is_object()) return;
  for (const char* key : {"uri", "targetUri", "file"})  // the last in the arguments of clangd's commands
    if (value.contains(key) && value[key].is_string()) uri = value[key].get<std::string>();
  if (const std::string inner = text_at(value, "/textDocument/uri"_json_pointer); !inner.empty()) uri = inner;
  const EditorText* script = script_of(uri);
  const auto mapped = [&](EditorPosition position) {
    return to_file ? script->to_file(position) : script->to_script(position);
  };
  if (is_position(value)) {
    if (!script) return;
    const EditorPosition position = mapped(position_of(value));
    value["line"] = position.line;
    value["character"] = position.character;
    return;
  }
  if (script && value.contains("startLine") && value.contains("endLine"))  // a range to fold
    for (const std::string side : {"start", "end"}) {
      const EditorPosition position =
          mapped({counted(value[side + "Line"].get<int64_t>()), counted(value.value(side + "Character", int64_t{0}))});
      value[side + "Line"] = position.line;
      if (value.contains(side + "Character")) value[side + "Character"] = position.character;
    }
  for (auto& [key, each] : value.items()) {
    if (key == "changes" && each.is_object()) {  // of several documents
      for (auto& [document, edits] : each.items()) map_positions(edits, document, to_file);
    } else if (key == "fromRanges") {  // of the caller
      const std::string caller = text_at(value, "/from/uri"_json_pointer);
      map_positions(each, caller.empty() ? uri : caller, to_file);
    } else if (key != "data") {  // clangd's own
      map_positions(each, uri, to_file);
    }
  }
}

/// Returns symbols without the namespaces and functions that translation has added; what is in the former stays.
json ClangdProxy::real_symbols(const json& symbols) const {
  json kept = json::array();
  for (json symbol : symbols) {
    const std::string name = symbol.value("name", "");
    if (name.starts_with(kStatements)) continue;
    json inner = symbol.contains("children") ? real_symbols(symbol["children"]) : json::array();
    if (name.starts_with(kScript)) {
      for (json& each : inner) kept.push_back(std::move(each));
      continue;
    }
    if (symbol.contains("children")) symbol["children"] = std::move(inner);
    kept.push_back(std::move(symbol));
  }
  return kept;
}

/// Tokens are numbers in fives: lines since the last token, characters since it or the line's beginning, length, kind,
/// modifiers.
void ClangdProxy::map_tokens(json& data, const EditorText& script) const {
  EditorPosition at, last;
  json mapped = json::array();
  for (size_t i = 0; i + 4 < data.size(); i += 5) {
    const int lines = counted(data[i].get<int64_t>()), characters = counted(data[i + 1].get<int64_t>());
    at = {counted(at.line + lines), counted(lines == 0 ? at.character + characters : characters)};
    const EditorPosition here = script.to_script(at), again = script.to_file(here);
    if (again.line != at.line || again.character != at.character) continue;  // inserted
    mapped.push_back(here.line - last.line);
    mapped.push_back(here.line == last.line ? here.character - last.character : here.character);
    for (size_t k = 2; k < 5; ++k) mapped.push_back(data[i + k]);
    last = here;
  }
  data = std::move(mapped);
}

}  // namespace lockstep::shell
