// Stands between an editor and clangd: session scripts reach clangd as one C++ file (shell/scripts/editor_text.h), and
// what clangd answers comes back with the positions of the script. Messages of the Language Server Protocol are JSON,
// in and out; who calls reads and writes them. Other files pass through unchanged.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shell/scripts/editor_text.h"

namespace lockstep::shell {

/// Takes the first message off `bytes`, which a stream has given so far: a header with its length, and JSON. Returns nothing
/// before all of it is there. Throws ChannelError for what is no message.
std::optional<nlohmann::json> take_editor_message(std::string& bytes);

class ClangdProxy {
 public:
  /// `flags` say how cells are compiled, without the compiler's name and the file.
  explicit ClangdProxy(std::vector<std::string> flags) : flags_(std::move(flags)) {}

  struct Messages {
    std::vector<nlohmann::json> to_clangd, to_editor;
  };
  /// Both throw nlohmann::json::exception for a message that is not one of the protocol.
  Messages from_editor(nlohmann::json message);
  Messages from_clangd(nlohmann::json message);

 private:
  struct Request {
    std::string method;
    std::string uri;  // of the document that it is about; empty: none
  };
  void set_text(const std::string& uri, const std::string& text, Messages& out);
  const EditorText* script_of(const std::string& uri) const;
  void map_positions(nlohmann::json& value, std::string uri, bool to_file) const;
  nlohmann::json real_symbols(const nlohmann::json& symbols) const;
  void map_tokens(nlohmann::json& data, const EditorText& script) const;

  std::vector<std::string> flags_;
  std::map<std::string, EditorText> scripts_;  // by uri
  std::map<std::string, Request> requests_;  // of the editor, by the text of their id
};

/// Makes "/a b.cpp" of "file:///a%20b.cpp"; empty for what is no file.
std::string path_of_uri(const std::string& uri);

/// Takes the names of namespaces that translation has added out.
std::string without_script_names(std::string text);

}  // namespace lockstep::shell
