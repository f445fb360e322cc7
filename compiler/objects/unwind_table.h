// The sorted table of functions by which an exception finds how to unwind them (.eh_frame_hdr).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::compiler {

/// Returns where the descriptions of functions (FDE) begin in `eh_frame`, or nothing if it has a form that clang does
/// not use with -fPIC: addresses must be signed 32-bit numbers relative to themselves.
std::optional<std::vector<size_t>> function_descriptions(std::string_view eh_frame);

constexpr size_t unwind_table_size(size_t functions) { return 12 + 8 * functions; }

/// Makes the table for `eh_frame`, whose relocations have been applied. The addresses are those of the two sections in
/// the shared object. Source: Linux Standard Base 5.0, Core, 10.6.2.
std::string unwind_table(std::string_view eh_frame, const std::vector<size_t>& functions, uint64_t eh_frame_address,
                         uint64_t table_address);

}  // namespace lockstep::compiler
