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
namespace torch::nn {
class Module;
}

namespace lockstep {

std::string hexadecimal(const char* prefix, uintptr_t value);
/// In quotes, as C++ writes it.
std::string escaped(std::string_view value, char quote);

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

/// In PyTorch's form, with size, dtype, device and requires_grad or grad_fn of each; its edges alone where it is large
/// (show_options.h). A nested tensor tensor by tensor; quantized ones and those of mkldnn as LibTorch prints them.
std::string text_of_tensor(const at::Tensor& tensor);

/// Whether numbers that differ between ranks are shown as one range: show::options({.ranks = "range"}).
bool shows_ranks_as_range();

/// A line for each module with its arguments, indented below the one it is in; the numbers of parameters behind `#`,
/// and a last line about all of them.
std::string text_of_module(const torch::nn::Module& module);

}  // namespace lockstep
