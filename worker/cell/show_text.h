// Pieces of the text of shown values: quoted strings, numbers, and what Clang writes of template arguments.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

std::string hexadecimal(const char* prefix, uintptr_t value);
/// In quotes, as C++ writes it.
std::string escaped(std::string_view value, char quote);

std::string utf8(uint32_t code);
/// Text in UTF-8, UTF-16 or UTF-32, by the size of its units; what is no character becomes U+FFFD.
std::string utf8(const void* units, size_t count, size_t bytes_each);

/// Shortest text that reads back as the same number; as a float where `digits` are those of one.
std::string shortest(double value, int digits = 17);
std::string shortest(long double value);
std::string decimal(unsigned __int128 value, bool is_negative);

/// "... [V = <a, b(1, 2), c>]" is a, b(1, 2) and c; a text without brackets is a list by itself.
std::vector<std::string_view> template_arguments(std::string_view text);
/// "... [T = (lambda at DIR/cells/cell_7.cpp:3:5)]" is "lambda of cell 7, line 3".
std::string place_of_lambda(std::string_view text);

/// As LibTorch prints it; with both parts of complex numbers, of which LibTorch drops one. Of those without elements
/// that can be read (meta), what is known of it.
std::string text_of_tensor(const at::Tensor& tensor);

}  // namespace lockstep
