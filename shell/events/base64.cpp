#include "shell/events/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>

namespace lockstep::shell {
namespace {
unsigned char* data_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* data_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
}  // namespace

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // it ends with a zero
  text.resize(static_cast<size_t>(::EVP_EncodeBlock(data_of(text), data_of(bytes), static_cast<int>(bytes.size()))));
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = ::EVP_DecodeBlock(data_of(bytes), data_of(text), static_cast<int>(text.size()));
  if (size < 0) throw std::invalid_argument("no base64");
  bytes.resize(static_cast<size_t>(size - std::count(text.begin(), text.end(), '=')));  // which stand for zeros
  return bytes;
}

}  // namespace lockstep::shell
