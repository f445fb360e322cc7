// Options and suppressions of the sanitizers, linked into every program of a sanitized build: they hold however a
// program is started, by ctest, by another program, or by hand. The variables ASAN_OPTIONS, UBSAN_OPTIONS, LSAN_OPTIONS
// and TSAN_OPTIONS change them for a run.
//
// A suppression names code that is not ours, and has the reason beside it.

extern "C" {

const char* __asan_default_options() {
  // The worker has stacks of its own for handlers of signals, which the runtime would unmap when a thread ends.
  // LLVM's allocators poison what is free where they are compiled here, and not where libclang is, which has no
  // instrumentation: both use the same ones.
  return "use_sigaltstack=0:allow_user_poisoning=0";
}

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

const char* __lsan_default_suppressions() {
  // LibTorch's PyTorchStreamReader, whose constructor throws for a damaged archive, and so has no destructor.
  return "leak:mz_zip_reader_init\n";
}

const char* __tsan_default_options() { return ""; }

const char* __tsan_default_suppressions() { return ""; }

}  // extern "C"
