// Puts putwc, wprintf and their siblings of the worker in front of the C library's: on stdout and stderr they write
// UTF-8. The C library's would make the stream one of wide characters for good, and drop what printf and std::cout
// write to it later. std::wcout and std::wcerr write by putwc. For other files they are the C library's.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string>

#include "protocol/next_function.h"
#include "worker/cell/show_text.h"

namespace {

bool is_standard(const FILE* file) { return file == stdout || file == stderr; }

bool write_utf8(const wchar_t* text, size_t length, FILE* file) {
  const std::string bytes = lockstep::utf8(text, length, sizeof(wchar_t));
  return std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
}

int write_formatted(FILE* file, const wchar_t* format, va_list arguments) {
  auto* const real = lockstep::next_function<"vfwprintf", int(FILE*, const wchar_t*, va_list)>();
  if (!is_standard(file)) return real(file, format, arguments);
  wchar_t* text = nullptr;
  size_t length = 0;
  FILE* memory = ::open_wmemstream(&text, &length);
  if (!memory) return -1;
  int written = real(memory, format, arguments);
  std::fclose(memory);
  if (written >= 0 && !write_utf8(text, length, file)) written = -1;
  std::free(text);
  return written;
}

}  // namespace

extern "C" {

wint_t fputwc(wchar_t character, FILE* file) {
  auto* const real = lockstep::next_function<"fputwc", wint_t(wchar_t, FILE*)>();
  if (!is_standard(file)) return real(character, file);
  return write_utf8(&character, 1, file) ? static_cast<wint_t>(character) : WEOF;
}

wint_t putwc(wchar_t character, FILE* file) { return fputwc(character, file); }

wint_t putwchar(wchar_t character) { return fputwc(character, stdout); }

int fputws(const wchar_t* text, FILE* file) {
  auto* const real = lockstep::next_function<"fputws", int(const wchar_t*, FILE*)>();
  if (!is_standard(file)) return real(text, file);
  return write_utf8(text, std::wcslen(text), file) ? 1 : -1;
}

int vfwprintf(FILE* file, const wchar_t* format, va_list arguments) { return write_formatted(file, format, arguments); }

int vwprintf(const wchar_t* format, va_list arguments) { return write_formatted(stdout, format, arguments); }

int fwprintf(FILE* file, const wchar_t* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = write_formatted(file, format, arguments);
  va_end(arguments);
  return written;
}

int wprintf(const wchar_t* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = write_formatted(stdout, format, arguments);
  va_end(arguments);
  return written;
}
}
