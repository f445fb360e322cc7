// Makes pieces of the text of shown values: quoted strings, numbers, and what Clang writes of template arguments.
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
/// Returns the value in quotes, as C++ writes it.
std::string escaped(std::string_view value, char quote);

/// Text in UTF-8, UTF-16 or UTF-32, by the size of its units; what is no character becomes U+FFFD.
std::string utf8(const void* units, size_t count, size_t bytes_each);

std::string decimal(unsigned __int128 value, bool is_negative);

/// Makes a, b(1, 2) and c of "... [V = <a, b(1, 2), c>]"; a text without brackets is a list by itself.
std::vector<std::string_view> template_arguments(std::string_view text);
/// Makes "lambda of cell 7, line 3" of "... [T = (lambda at DIR/cells/cell_7.cpp:3:5)]".
std::string place_of_lambda(std::string_view text);

/// Writes a tensor in PyTorch's form, with size, dtype, device and requires_grad or grad_fn of each; only its edges if
/// it is large (show_options.h). A nested tensor goes tensor by tensor, quantized and mkldnn ones as LibTorch prints
/// them.
std::string text_of_tensor(const at::Tensor& tensor);

/// Whether numbers that differ between ranks are shown as one range: show::options({.ranks = "range"}).
bool shows_ranks_as_range();

/// Writes a line for each module with its arguments, indented below the one it is in; the numbers of parameters behind
/// `#`, and a last line about all of them.
std::string text_of_module(const torch::nn::Module& module);

}  // namespace lockstep
