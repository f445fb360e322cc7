// The start of programs on systems before glibc 2.34, which do not call the constructors of a program themselves: the
// program passes a function that does. Newer systems call that function, too, and then nothing else.
extern void (*__preinit_array_start[])(int, char**, char**) __attribute__((visibility("hidden")));
extern void (*__preinit_array_end[])(int, char**, char**) __attribute__((visibility("hidden")));
extern void (*__init_array_start[])(int, char**, char**) __attribute__((visibility("hidden")));
extern void (*__init_array_end[])(int, char**, char**) __attribute__((visibility("hidden")));
extern void _init(void);

static void call_constructors(int count, char** arguments, char** environment) {
  for (void (**each)(int, char**, char**) = __preinit_array_start; each < __preinit_array_end; ++each)
    (*each)(count, arguments, environment);
  _init();
  for (void (**each)(int, char**, char**) = __init_array_start; each < __init_array_end; ++each)
    (*each)(count, arguments, environment);
}

typedef int Main(int, char**, char**);
typedef void Constructors(int, char**, char**);
int system_start(Main*, int, char**, Constructors*, void (*)(void), void (*)(void), void*);
__asm__(".symver system_start, __libc_start_main@GLIBC_2.2.5");

__attribute__((visibility("hidden"))) int __libc_start_main(Main* main, int count, char** arguments, Constructors* none,
                                                            void (*at_end)(void), void (*loader_end)(void), void* stack) {
  (void)none;
  return system_start(main, count, arguments, call_constructors, at_end, loader_end, stack);
}
